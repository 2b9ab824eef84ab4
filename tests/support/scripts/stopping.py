"""EarlyStopping: at most 20 epochs of 800 samples, 200 held out, the usual batch of 32. model.save() after fit must not run."""

import numpy as np
from keras import Input, Sequential, callbacks, layers

model = Sequential([Input((6,)), layers.Dense(4, "relu"), layers.Dense(1)])
model.compile("rmsprop", "mse")
stop = callbacks.EarlyStopping(patience=2)
model.fit(np.zeros((1000, 6)), np.zeros(1000), epochs=20, validation_split=0.2, callbacks=[stop])
model.save("after.keras")
