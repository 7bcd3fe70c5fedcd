"""Scores and objectives on a model that is small enough to enumerate: 2 latents of 3 values."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from permvi.distributions import Concrete
from permvi.experiments.vae import evaluation, training
from permvi.experiments.vae.model import FAMILIES, OBJECTIVES, Inputs, new_vae
from permvi.experiments.vae.settings import Settings

LATENTS, N, PIXELS, IMAGES = 2, 3, 5, 2
CODES = np.array(list(itertools.product(range(N), repeat=LATENTS)))


@pytest.fixture(scope="module")
def model():
    return new_vae(
        np.random.default_rng(3),
        pixels=PIXELS,
        latents=LATENTS,
        categories=N,
        parameters=N,
        widths=(6,),
    )


@pytest.fixture(scope="module")
def images():
    return jnp.asarray(np.random.default_rng(4).uniform(size=(IMAGES, PIXELS)))


@pytest.fixture(scope="module")
def logits(model, images):
    return 4 * model.encode(images)


def enumerated(model, images):
    """(codes, images) log p(x | z) of all codes, computed one by one."""
    rows = []
    for code in CODES:
        one_hot = np.eye(N)[code].reshape(-1)
        p = special.expit(np.asarray(model.decoder(jnp.asarray(one_hot))))
        rows.append([sum(x * np.log(p) + (1 - x) * np.log1p(-p)) for x in np.asarray(images)])
    return np.array(rows)


def probabilities(log_probs):
    """(codes, images) q of all codes."""
    q = np.exp(np.asarray(log_probs))
    return np.array([np.prod(q[:, range(LATENTS), code], axis=-1) for code in CODES])


def exact(model, images, log_probs):
    """-log p(x), the negative ELBO and KL(q || uniform), image by image."""
    likelihoods, q = enumerated(model, images), probabilities(log_probs)
    nll = -(special.logsumexp(likelihoods, axis=0) - math.log(len(CODES)))
    kl = (q * np.log(q * len(CODES))).sum(0)
    return nll, kl - (q * likelihoods).sum(0), kl


def test_scores_against_enumeration(model, images, logits):
    log_probs = jax.nn.log_softmax(logits)
    nll, negative_elbo, kl = exact(model, images, log_probs)

    def repeated(num_samples, repetitions):
        def one(rng_key):
            return evaluation.scores(
                rng_key, model, log_probs, images, num_samples=num_samples, at_once=num_samples // 2
            )

        found = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), repetitions))
        return found, 4.5 * np.std(found.iw_nll, axis=0) / np.sqrt(repetitions)

    few, few_error = repeated(4, 5000)
    many, many_error = repeated(2000, 10)
    for found in (few, many):
        np.testing.assert_allclose(found.kl[0], kl, rtol=1e-10)
        spread = found.negative_elbo.std(0) / np.sqrt(len(found.kl))
        assert (np.abs(found.negative_elbo.mean(0) - negative_elbo) < 4.5 * spread).all()
    # Burda et al. (2016): the bound is tighter than the ELBO and tightens down to -log p(x).
    assert (few.iw_nll.mean(0) + few_error < negative_elbo).all()
    assert (few.iw_nll.mean(0) - few_error > nll).all()
    # The bias with S samples is half the relative variance of a weight over S.
    weights = np.exp(enumerated(model, images) + nll) / len(CODES)
    variance = (weights**2 / probabilities(log_probs)).sum(0) - 1
    bias = variance / 2 / 2000
    assert (np.abs(many.iw_nll.mean(0) - nll - bias) < many_error + bias).all()


def estimates(name, model, images, q_of, logits, count, settings=None, weight=1.0):
    """(count, images) values and (count, images, latents, n) gradients of an objective."""
    objective = OBJECTIVES[name]

    def one(rng_key):
        def values(logits):
            q = q_of(logits)
            given = Inputs(rng_key, model, q, images, settings or Settings(), jnp.asarray(weight))
            found = objective(given)
            return found.sum(), found

        gradient, found = jax.grad(values, has_aux=True)(logits)
        return found, gradient

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(5), count))


def test_reinforce_is_unbiased(model, images, logits):
    count = 20_000
    values, gradients = estimates("reinforce", model, images, Concrete, logits, count)
    likelihoods = jnp.asarray(enumerated(model, images))

    def elbo(logits):
        log_probs = jax.nn.log_softmax(logits)
        log_q = sum(log_probs[:, k, CODES[:, k]].T for k in range(LATENTS))
        q = jnp.exp(log_q)
        return jnp.sum(q * (likelihoods - log_q - math.log(len(CODES)))), None

    expected = jax.grad(elbo, has_aux=True)(logits)[0]
    errors = np.abs(gradients.mean(0) - expected) / (gradients.std(0) / np.sqrt(count))
    # Twelve entries: beyond 4.5 standard errors once in ten thousand tests.
    assert errors.max() < 4.5
    _, negative_elbo, _ = exact(model, images, jax.nn.log_softmax(logits))
    assert (np.abs(values.mean(0) + negative_elbo) < 4.5 * values.std(0) / np.sqrt(count)).all()


@pytest.mark.parametrize("name", ["categorical_kl", "straight_through"])
def test_cold_objectives_are_the_discrete_elbo(model, images, logits, name):
    def cold(logits):
        return Concrete(logits, 1e-3)

    count = 10_000
    values, _ = estimates(name, model, images, cold, logits, count)
    _, negative_elbo, _ = exact(model, images, jax.nn.log_softmax(logits))
    # One draw in some hundreds is not at a vertex yet; its likelihood differs by less than 10.
    slack = 0.02 if name == "categorical_kl" else 0
    error = np.abs(values.mean(0) + negative_elbo)
    assert (error < 4.5 * values.std(0) / np.sqrt(count) + slack).all()


@pytest.mark.parametrize(("name", "family"), [("relaxed", "rounding"), ("concrete", "concrete")])
def test_relaxed_elbos_weigh_by_normalised_densities(model, images, name, family):
    """E_q[prior / q] = 1: what remains of the relaxed ELBO without its reconstruction."""
    parameters = jnp.zeros((IMAGES, LATENTS, FAMILIES[family].num_parameters(N)))
    bounds = (jnp.asarray(0.7), jnp.asarray(0.7))
    settings = Settings(prior_width=0.5)

    def q_of(parameters):
        # At temperature 1 nothing is rounded and the support is everything.
        return FAMILIES[family].relaxed(parameters, jnp.asarray(1.0), bounds)

    given = (model, images, q_of, parameters, 20_000, settings)
    whole, _ = estimates(f"{name}_elbo", *given, weight=1.0)
    reconstruction, _ = estimates(f"{name}_elbo", *given, weight=0.0)
    ratios = np.exp(whole - reconstruction)
    assert (np.abs(ratios.mean(0) - 1) < 4.5 * ratios.std(0) / np.sqrt(len(ratios))).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_untrained_codes_are_uniform(family):
    parameters = jnp.zeros((FAMILIES[family].num_parameters(4),))
    bounds = (jnp.asarray(0.1), jnp.asarray(0.5))

    @jax.jit
    def log_probs(parameters):
        q = FAMILIES[family].relaxed(parameters, jnp.asarray(1.0), bounds)
        return q.category_log_probs

    np.testing.assert_allclose(np.exp(log_probs(parameters)), 0.25, atol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_can_be_trained(family):
    design = training.Design(family, "relaxed_elbo", LATENTS, N, (6,), 3, 10)
    state = training.start(design, PIXELS, [0, 1])
    settings = Settings(*(jnp.full(2, 0.5) for _ in Settings._fields))
    images = jnp.zeros((7, PIXELS), jnp.uint8)
    after, values = jax.eval_shape(
        lambda *given: training.advance(design, *given, 2),
        state,
        jnp.arange(2),
        settings,
        images,
        jnp.asarray(0),
    )
    assert values.shape == (2,)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)
