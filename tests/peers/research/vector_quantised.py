"""VQ-VAE: nearest codes, straight-through, commitment, codebook by exponential moving averages with segment_sum."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, nn, random
from jax.ops import segment_sum

K, D = 64, 16
rng = np.random.default_rng(2)
base = rng.normal(size=(10, 8, 8, 1))
IMAGES = jnp.asarray(base[rng.integers(0, 10, 256)] + 0.1 * rng.normal(size=(256, 8, 8, 1)), jnp.float32)
DN = ("NHWC", "HWIO", "NHWC")


def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=DN)


def encode(p, x):
    h = nn.gelu(conv(x, p["e1"], 2))
    return conv(h, p["e2"])


def decode(p, z):
    h = nn.gelu(lax.conv_transpose(z, p["d1"], (2, 2), "SAME", dimension_numbers=DN))
    return conv(h, p["d2"])


def quantise(code, z):
    flat = z.reshape(-1, D)
    d = jnp.sum(flat**2, 1, keepdims=True) - 2 * flat @ code.T + jnp.sum(code**2, 1)
    idx = jnp.argmin(d, axis=1)
    q = jnp.take(code, idx, axis=0).reshape(z.shape)
    return z + lax.stop_gradient(q - z), q, idx


def update_code(ema, z, idx, decay=0.9):
    n, m, _code = ema
    flat = z.reshape(-1, D)
    n = decay * n + (1 - decay) * segment_sum(jnp.ones(len(flat)), idx, num_segments=K)
    m = decay * m + (1 - decay) * segment_sum(flat, idx, num_segments=K)
    total = n.sum()
    smooth = (n + 1e-5) / (total + K * 1e-5) * total
    return n, m, m / smooth[:, None]


def loss_fn(p, code, x):
    z = encode(p, x)
    st, q, idx = quantise(code, z)
    rec = jnp.mean((decode(p, st) - x) ** 2)
    commit = jnp.mean((z - lax.stop_gradient(q)) ** 2)
    return rec + 0.25 * commit, (rec, z, idx)


opt = optax.adam(2e-3)


def init():
    ks = random.split(random.PRNGKey(0), 5)
    he = nn.initializers.he_normal()
    p = {
        "e1": he(ks[0], (3, 3, 1, 32)),
        "e2": he(ks[1], (3, 3, 32, D)),
        "d1": he(ks[2], (3, 3, D, 32)),
        "d2": he(ks[3], (3, 3, 32, 1)),
    }
    code = random.normal(ks[4], (K, D))
    return p, opt.init(p), (jnp.ones(K), code, code), random.PRNGKey(1)


@jax.jit
def step(state, i):
    p, s, ema, key = state
    key, sub = random.split(key)
    x = IMAGES[random.choice(sub, 256, (64,), replace=False)]
    (loss, (rec, z, idx)), g = jax.value_and_grad(loss_fn, has_aux=True)(p, ema[2], x)
    up, s = opt.update(g, s)
    ema = update_code(ema, z, idx)
    probs = jnp.bincount(idx, length=K) / idx.size
    perplexity = jnp.exp(-jnp.sum(jax.scipy.special.xlogy(probs, probs)))
    return (optax.apply_updates(p, up), s, ema, key), (loss, rec, perplexity)
