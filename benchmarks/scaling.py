"""How time grows, for one peer: python scaling.py funcgrad|jax|torch [width depth batch equations leaves]

width, depth, batch: a training step (cross entropy, SGD) of dense layers.  equations: a chain of elementwise operations on 256
elements, each of which reads the one before.  leaves: an Adam step on many small arrays.  The step or call is timed warm;
"first" is the first one, with whatever compiling it takes.
"""

import importlib
import sys
import time

import numpy as np
from harness import emit, skip, times

F = np.float32
POINTS = {
    "width": (64, 128, 256, 512, 1024, 2048),
    "depth": (2, 4, 8, 16, 32, 64),
    "batch": (8, 32, 128, 512, 2048, 8192),
    "equations": (10, 100, 1000, 3000, 10000),
    "leaves": (1, 10, 100, 300, 1000),
}
LONGEST = 4.0  # seconds of a first call: a longer curve ends there


def layers(width, depth, batch):
    """Parameters and one batch."""
    r = np.random.default_rng(width + depth + batch)
    p = [(r.normal(0, width**-0.5, (width, width)).astype(F), np.zeros(width, F)) for _ in range(depth)]
    return p, r.normal(size=(batch, width)).astype(F), r.integers(0, width, batch).astype(np.int32)


SIZES = {
    "width": lambda n: layers(n, 3, 128),
    "depth": lambda n: layers(128, n, 64),
    "batch": lambda n: layers(256, 3, n),
}


def first_and_warm(peer, family, n, run, has_first):
    """Time the first call and later ones; returns the seconds of the first."""
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    if has_first:
        emit(peer, f"scaling-{family}", f"first@{n}", first)
    ts = times(run, 2000, 3, 0.6, 5)
    emit(peer, f"scaling-{family}", f"{'call' if family == 'equations' else 'step'}@{n}", ts)
    return first


# -- funcgrad and JAX: one program for both ----------------------------------------------------------------------
class Functional:
    """A peer with jit and grad: ``jax`` is its module, ``jnp`` its numpy, ``optax`` its optimizers."""

    def __init__(self, name):
        mine = name == "funcgrad"
        self.jax = importlib.import_module(name)
        self.jnp = importlib.import_module(f"{name}.numpy")
        self.optax = importlib.import_module("funcgrad.optim" if mine else "optax")

    def dense(self, params, x, y):
        jax, jnp = self.jax, self.jnp

        def loss(p):
            h = x
            for w, b in p[:-1]:
                h = jax.nn.relu(h @ w + b)
            w, b = p[-1]
            return -jnp.take_along_axis(jax.nn.log_softmax(h @ w + b), y[:, None], -1).mean()

        def step(p):
            l, g = jax.value_and_grad(loss)(p)
            return jax.tree.map(lambda a, b: a - F(0.01) * b, p, g), l

        x, y = jnp.asarray(x), jnp.asarray(y)
        return self.repeat(jax.jit(step, donate_argnums=0), jax.tree.map(jnp.array, params))

    def repeat(self, step, state):
        """A call of ``step``, which replaces its state."""
        box = [state]

        def run():
            box[0], out = step(box[0])
            self.jax.block_until_ready((box[0], out))

        return run

    def equations(self, n):
        jax, jnp = self.jax, self.jnp

        def chain(x):
            y = x
            for _ in range(n // 2):
                y = jnp.tanh(y) + x
            return y

        f, x = jax.jit(chain), jnp.ones(256)
        return lambda: jax.block_until_ready(f(x))

    def leaves(self, n):
        jax, jnp, optax = self.jax, self.jnp, self.optax
        tx = optax.adam(1e-3)
        params = [jnp.full(64, F(i)) for i in range(n)]

        def step(c):
            p, s = c
            u, s = tx.update([a * F(0.5) for a in p], s, p)
            return (optax.apply_updates(p, u), s), p[0][0]

        return self.repeat(jax.jit(step, donate_argnums=0), (params, tx.init(params)))


# -- PyTorch -----------------------------------------------------------------------------------------------------
class Torch:
    """Eager, with fused optimizers."""

    def __init__(self, _):
        self.torch = importlib.import_module("torch")

    def dense(self, params, x, y):
        torch = self.torch
        f = torch.nn.functional
        p = [(torch.tensor(w.T.copy()).requires_grad_(), torch.tensor(b).requires_grad_()) for w, b in params]
        x, y = torch.tensor(x), torch.tensor(y).long()
        opt = torch.optim.SGD([a for q in p for a in q], 0.01, fused=True)

        def run():
            opt.zero_grad(set_to_none=True)
            h = x
            for w, b in p[:-1]:
                h = torch.relu(f.linear(h, w, b))
            f.cross_entropy(f.linear(h, *p[-1]), y).backward()
            opt.step()

        return run

    def equations(self, n):
        torch = self.torch
        x = torch.ones(256)

        def run():
            y = x
            for _ in range(n // 2):
                y = torch.tanh(y) + x

        return run

    def leaves(self, n):
        torch = self.torch
        p = [torch.full((64,), float(i)).requires_grad_() for i in range(n)]
        opt = torch.optim.Adam(p, 1e-3, fused=True)

        def run():
            for a, g in zip(p, torch._foreach_mul([a.detach() for a in p], 0.5), strict=True):
                a.grad = g
            opt.step()

        return run


def main(argv):
    peer = argv[0]
    made = (Torch if peer == "torch" else Functional)(peer)
    for family in argv[1:] or POINTS:
        for n in POINTS[family]:
            make = getattr(made, family, None)
            run = make(n) if make else made.dense(*SIZES[family](n))
            has_first = peer != "torch" and family in ("depth", "equations")
            if first_and_warm(peer, family, n, run, has_first) > LONGEST:
                skip(peer, f"scaling-{family}", f"beyond {n}: its first call took more than {LONGEST:.0f} s")
                break


if __name__ == "__main__":
    main(sys.argv[1:])
