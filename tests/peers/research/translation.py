"""An encoder-decoder transformer: padding masks, cross attention, label smoothing, tied embeddings, own classes."""

import dataclasses
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import nn, random

V, D, H, B, S, T = 60, 48, 4, 16, 20, 18
rng = np.random.default_rng(30)
SRC = rng.integers(3, V, (B, S))
SRC[np.arange(S)[None] >= rng.integers(8, S + 1, B)[:, None]] = 0
TGT = rng.integers(3, V, (B, T))
TGT[np.arange(T)[None] >= rng.integers(8, T + 1, B)[:, None]] = 0
SRC, TGT = jnp.asarray(SRC), jnp.asarray(TGT)


@partial(jax.tree_util.register_dataclass, data_fields=["q", "k", "v", "o"], meta_fields=["heads"])
@dataclass
class Attention:
    q: jax.Array
    k: jax.Array
    v: jax.Array
    o: jax.Array
    heads: int = H

    @classmethod
    def create(cls, key):
        w = [random.normal(k, (D, D)) / np.sqrt(D) for k in random.split(key, 4)]
        return cls(*w)

    def __call__(self, x, mem, mask):
        split = lambda a: a.reshape(*a.shape[:-1], self.heads, D // self.heads)
        out = nn.dot_product_attention(split(x @ self.q), split(mem @ self.k), split(mem @ self.v), mask=mask)
        return out.reshape(x.shape) @ self.o


@jax.tree_util.register_pytree_node_class
class FeedForward:
    def __init__(self, w1, w2, act="gelu"):
        self.w1, self.w2, self.act = w1, w2, act

    def tree_flatten(self):
        return (self.w1, self.w2), self.act

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children, act=aux)

    def __call__(self, x):
        return getattr(nn, self.act)(x @ self.w1) @ self.w2


def norm(x):
    return nn.standardize(x, epsilon=1e-6)


def positions(n):
    p = np.arange(n)[:, None] / 10000 ** (2 * np.arange(D // 2)[None] / D)
    return jnp.asarray(np.concatenate([np.sin(p), np.cos(p)], 1), jnp.float32)


def model(p, src, tgt, key=None):
    keep = lambda k, x: (
        x if key is None else jnp.where(random.bernoulli(random.fold_in(key, k), 0.9, x.shape), x / 0.9, 0)
    )
    pad = (src != 0)[:, None, None, :]
    x = p["emb"][src] * jnp.sqrt(D) + positions(S)
    for i, l in enumerate(p["enc"]):
        x = x + keep(2 * i, l["attn"](norm(x), norm(x), pad))
        x = x + keep(2 * i + 1, l["ff"](norm(x)))
    mem = norm(x)
    causal = jnp.tril(jnp.ones((T, T), bool))[None, None] & (tgt != 0)[:, None, None, :]
    y = p["emb"][tgt] * jnp.sqrt(D) + positions(T)
    for l in p["dec"]:
        y = y + l["attn"](norm(y), norm(y), causal)
        y = y + l["cross"](norm(y), mem, pad)
        y = y + l["ff"](norm(y))
    return norm(y) @ p["emb"].T


def loss_fn(p, key):
    inp = jnp.pad(TGT[:, :-1], ((0, 0), (1, 0)), constant_values=1)
    logits = model(p, SRC, inp, key)
    labels = optax.smooth_labels(nn.one_hot(TGT, V), 0.1)
    w = (TGT != 0).astype(jnp.float32)
    ce = optax.softmax_cross_entropy(logits, labels)
    return (ce * w).sum() / w.sum(), ((logits.argmax(-1) == TGT) * w).sum() / w.sum()


opt = optax.chain(
    optax.adaptive_grad_clip(0.1),
    optax.adam(optax.warmup_exponential_decay_schedule(1e-4, 3e-3, 5, 10, 0.9), b2=0.98, eps=1e-9),
)


def init():
    k = iter(random.split(random.PRNGKey(0), 40))
    ff = lambda: FeedForward(
        random.normal(next(k), (D, 4 * D)) / np.sqrt(D), random.normal(next(k), (4 * D, D)) / np.sqrt(4 * D)
    )
    p = {
        "emb": random.normal(next(k), (V, D)) * 0.1,
        "enc": [{"attn": Attention.create(next(k)), "ff": ff()} for _ in range(2)],
        "dec": [{"attn": Attention.create(next(k)), "cross": Attention.create(next(k)), "ff": ff()} for _ in range(2)],
    }
    return p, opt.init(p), random.PRNGKey(9)


@jax.jit
def step(state, i):
    p, s, key = state
    key, sub = random.split(key)
    (loss, acc), g = jax.value_and_grad(loss_fn, has_aux=True)(p, sub)
    up, s = opt.update(g, s, p)
    return (optax.apply_updates(p, up), s, key), (loss, acc)


def extra(state):
    shapes = jax.eval_shape(model, state[0], SRC, TGT)
    return jnp.array(shapes.shape), dataclasses.replace(state[0]["enc"][0]["attn"], q=jnp.zeros((D, D))).q.sum()
