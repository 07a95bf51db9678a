"""LoRA of a frozen transformer: multi_transform by path, decay masks, tied weights, accumulation, averages."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import nn, random

V, D, H, L, B, T, R = 40, 32, 4, 2, 8, 24, 4
rng = np.random.default_rng(14)
IDS = jnp.asarray(rng.integers(0, V, (B, T + 1)))


def init_base(key):
    k = iter(random.split(key, 100))
    n = lambda *s: random.normal(next(k), s) * 0.1
    return {
        "emb": n(V, D),
        "blocks": {
            f"b{i}": {
                "attn": {"q": n(D, D), "k": n(D, D), "v": n(D, D), "o": n(D, D)},
                "mlp": {"up": n(D, 4 * D), "down": n(4 * D, D)},
                "ln": {"scale": jnp.ones(D), "bias": jnp.zeros(D)},
            }
            for i in range(L)
        },
    }


def add_lora(key, base):
    def per(path, w):
        name = jax.tree_util.keystr(path)
        if w.ndim == 2 and ("attn" in name):
            k = random.fold_in(key, sum(map(ord, name)))
            return {"w": w, "lora_a": random.normal(k, (w.shape[0], R)) * 0.1, "lora_b": jnp.zeros((R, w.shape[1]))}
        return {"w": w}

    return jax.tree_util.tree_map_with_path(per, base)


def lin(p, x):
    y = x @ p["w"]
    return y + (x @ p["lora_a"]) @ p["lora_b"] * 2.0 if "lora_a" in p else y


def norm(p, x):
    return nn.standardize(x, axis=-1, epsilon=1e-5) * p["scale"]["w"] + p["bias"]["w"]


def model(p, ids):
    x = p["emb"]["w"][ids]
    for name in sorted(p["blocks"]):
        b = p["blocks"][name]
        h = norm(b["ln"], x)
        q, k, v = (lin(b["attn"][n], h).reshape(*h.shape[:2], H, D // H) for n in "qkv")
        a = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + lin(b["attn"]["o"], a.reshape(h.shape))
        x = x + nn.gelu(h @ b["mlp"]["up"]["w"], approximate=False) @ b["mlp"]["down"]["w"]
    return jnp.einsum("btd,vd->btv", x, p["emb"]["w"])


def label(path, _):
    last = path[-1].key
    keys = [k.key for k in path]
    return "lora" if last.startswith("lora") else "norm" if "ln" in keys else "frozen"


def loss_fn(p, ids):
    logits = model(p, ids[:, :-1])
    labels = optax.smooth_labels(nn.one_hot(ids[:, 1:], V), 0.1)
    return optax.softmax_cross_entropy(logits, labels).mean()


def decay_mask(params):
    return jax.tree_util.tree_map(lambda x: x.ndim > 1, params)


def make(params):
    labels = jax.tree_util.tree_map_with_path(label, params)
    tx = optax.multi_transform(
        {
            "lora": optax.chain(optax.add_decayed_weights(0.01, mask=decay_mask), optax.adamw(1e-2, mask=decay_mask)),
            "norm": optax.sgd(1e-2, momentum=0.9, nesterov=True),
            "frozen": optax.set_to_zero(),
        },
        labels,
    )
    return optax.MultiSteps(tx, every_k_schedule=2), optax.ema(0.9)


def init():
    p = add_lora(random.PRNGKey(1), init_base(random.PRNGKey(0)))
    opt, ema = make(p)
    return p, opt.init(p), ema.init(p)


PARAMS = add_lora(random.PRNGKey(1), init_base(random.PRNGKey(0)))
OPT, EMA = make(PARAMS)


@jax.jit
def step(state, i):
    p, s, e = state
    loss, g = jax.value_and_grad(loss_fn)(p, jnp.roll(IDS, i, axis=1))
    up, s = OPT.update(g, s, p)
    p = optax.apply_updates(p, up)
    avg, e = EMA.update(p, e)
    return (p, s, e), (loss, optax.global_norm(up), optax.global_norm(avg), OPT.has_updated(s))


def extra(state):
    frozen = jax.tree.map(lambda a, b: jnp.abs(a - b).max(), PARAMS, state[0])
    flat = jax.tree_util.tree_flatten_with_path(frozen)[0]
    return [v for path, v in flat if "lora" not in jax.tree_util.keystr(path)], jax.tree.reduce(
        lambda a, b: a + b.size, state[0], 0
    )
