"""Tables that measuring commands print on a terminal: products, convolutions and trainings."""
