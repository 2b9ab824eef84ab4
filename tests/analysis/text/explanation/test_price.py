"""Money and joules in words."""

from finding_words import words

from analysis.stats import exact
from analysis.text.explanation import price


def test_a_price_names_the_cheapest_and_the_fastest():
    told = words(price, "price", cpu=exact(2.0), gpu=exact(1.0), cheapest="gpu", fastest="cpu")
    assert told == "CPU 2.00, GPU 1.00, in your currency. Cheapest: GPU. Fastest: CPU."
    unsure = words(price, "price", cpu=exact(2.0), gpu=exact(1.0), cheapest="neither", fastest="neither")
    assert unsure.endswith("Cheapest: can't tell. Fastest: can't tell.")
