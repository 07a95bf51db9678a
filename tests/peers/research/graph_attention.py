"""Graph attention and message passing over padded graphs: gathers, segment_sum, segment softmax, edge dropout."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import nn, random
from jax.ops import segment_max, segment_sum
from jax.tree_util import tree_map


class GraphsTuple(NamedTuple):
    nodes: Any
    edges: Any
    senders: Any
    receivers: Any
    graph: Any
    mask: Any


G, N, E, F, H, HEADS = 16, 320, 1400, 8, 32, 4
rng = np.random.default_rng(13)
gid = np.sort(rng.integers(0, G, N))
s = rng.integers(0, N, E)
r = np.array([rng.choice(np.flatnonzero(gid == gid[i])) for i in s])
GRAPH = GraphsTuple(
    jnp.asarray(rng.normal(size=(N, F)), jnp.float32),
    jnp.asarray(rng.normal(size=(E, 3)), jnp.float32),
    jnp.asarray(s),
    jnp.asarray(r),
    jnp.asarray(gid),
    jnp.asarray(rng.random(E) < 0.95),
)
LABEL = jnp.asarray(np.bincount(gid[s], minlength=G) > E / G, jnp.float32)


def segment_softmax(x, seg, n, mask):
    x = jnp.where(mask[:, None], x, -jnp.inf)
    m = segment_max(x, seg, num_segments=n)
    m = jnp.where(jnp.isfinite(m), m, 0.0)
    e = jnp.exp(x - m[seg])
    z = segment_sum(e, seg, num_segments=n)
    return e / (z[seg] + 1e-9)


def gat(p, g, x, key):
    h = jnp.einsum("nf,fhd->nhd", x, p["w"])
    score = (h * p["a"]).sum(-1)[g.senders] + (h * p["b"]).sum(-1)[g.receivers] + g.edges @ p["e"]
    keep = random.bernoulli(key, 0.9, (E,)) & g.mask
    alpha = segment_softmax(nn.leaky_relu(score, 0.2), g.receivers, N, keep)
    msg = h[g.senders] * alpha[..., None]
    return nn.elu(segment_sum(msg, g.receivers, num_segments=N).reshape(N, -1))


def model(p, g, key):
    x = g.nodes
    for i, layer in enumerate(p["layers"]):
        y = gat(layer, g, x, random.fold_in(key, i))
        x = y + x if y.shape == x.shape else y
    deg = segment_sum(jnp.ones(E), g.receivers, N, indices_are_sorted=False)
    x = x / jnp.sqrt(1 + deg)[:, None]
    count = segment_sum(jnp.ones(N), g.graph, G, indices_are_sorted=True)
    pooled = jnp.concatenate([segment_sum(x, g.graph, G) / count[:, None], segment_max(x, g.graph, G)], -1)
    return (pooled @ p["out"]).squeeze(-1)


def loss_fn(p, key):
    logits = model(p, GRAPH, key)
    return optax.sigmoid_binary_cross_entropy(logits, LABEL).mean() + 1e-4 * sum(
        jnp.sum(w**2) for w in jax.tree_util.tree_leaves(p)
    ), logits


opt = optax.adam(5e-3)


def init_layer(key, i):
    k = random.split(key, 4)
    return {
        "w": random.normal(k[0], (i, HEADS, H // HEADS)) / np.sqrt(i),
        "a": random.normal(k[1], (HEADS, H // HEADS)) * 0.3,
        "b": random.normal(k[2], (HEADS, H // HEADS)) * 0.3,
        "e": random.normal(k[3], (3, HEADS)) * 0.3,
    }


def init():
    k = random.split(random.PRNGKey(0), 4)
    p = {
        "layers": [init_layer(k[0], F), init_layer(k[1], H), init_layer(k[2], H)],
        "out": random.normal(k[3], (2 * H, 1)) * 0.1,
    }
    return p, opt.init(p), random.PRNGKey(9)


@jax.jit
def step(state, i):
    p, s, key = state
    key, sub = random.split(key)
    (loss, logits), g = jax.value_and_grad(loss_fn, has_aux=True)(p, sub)
    norms = tree_map(lambda x: jnp.linalg.norm(x.ravel()), g)
    up, s = opt.update(g, s, p)
    return (optax.apply_updates(p, up), s, key), (loss, logits, norms)
