# /// script
# requires-python = ">=3.11,<3.13"
# dependencies = [
#     "tensorflow==2.21.0",
#     "keras==3.15.1",
#     "tf-keras==2.21.0",
#     "tensorflow-model-optimization==0.8.0",
#     "numpy==1.26.4",
#     "scikit-learn==1.5.2",
#     "setuptools==80.9.0",
# ]
# ///
"""What the TensorFlow Model Optimization Toolkit does with today's Keras, and with the old one.

``python -m ci legacy`` runs this in an environment of its own, since the toolkit asks for an older
NumPy, and writes what it prints, one JSON object, into the recorded cell of ``model-structure``.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from importlib import metadata

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf
import tf_keras
from sklearn.datasets import load_digits

TARGET = 0.8  # the share of weights to be zero
digits = load_digits()
images = (digits.data / 16).astype("float32")  # shape (1797, 64)
labels = digits.target.astype("int32")
train, test = slice(0, 1400), slice(1400, None)


def first_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:50]}"


def attempt(work):
    try:
        return work()
    except Exception as error:
        return first_line(error)


def small(library):
    layers = library.layers
    return library.Sequential([layers.Input((64,)), layers.Dense(512, activation="relu"),
                               layers.Dense(512, activation="relu"), layers.Dense(10)])


def fitted():
    tf_keras.utils.set_random_seed(0)
    net = small(tf_keras)
    net.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"])
    net.fit(images[train], labels[train], epochs=10, verbose=0)
    return net


def accuracy(net):
    return round(float(net.evaluate(images[test], labels[test], verbose=0)[1]), 3)


def sizes(net):
    """Bytes of all weights, as they are and compressed; without the optimiser's state."""
    raw = b"".join(weight.tobytes() for weight in net.get_weights())
    return [len(raw), len(gzip.compress(raw, mtime=0))]


def zeros(net):
    kernels = [w for w in net.get_weights() if w.ndim == 2]
    return round(float(sum((k == 0).sum() for k in kernels) / sum(k.size for k in kernels)), 3)


def lite(net, optimise=False):
    """The net in TensorFlow Lite."""
    converter = tf.lite.TFLiteConverter.from_keras_model(net)
    converter.optimizations = [tf.lite.Optimize.DEFAULT] if optimise else []
    return tf.lite.Interpreter(model_content=converter.convert(), num_threads=1)


def lite_kernels(net):
    """Types of the matrices of weights after TensorFlow Lite's conversion."""
    runtime = lite(net, optimise=True)
    runtime.allocate_tensors()
    return sorted({np.dtype(each["dtype"]).name for each in runtime.get_tensor_details()
                   if len(each["shape"]) == 2 and min(each["shape"]) > 1})


def lite_call(net):
    runner = lite(net).get_signature_runner()
    name, = runner.get_input_details()
    return lambda x: runner(**{name: x})


def time_ratio(calls):
    """Time of the first call over that of the second for 256 images, the best of many turns."""
    batch, best = tf.constant(images[:256]), [float("inf")] * 2
    for _ in range(200):
        for place, call in enumerate(calls):
            began = time.perf_counter()
            call(batch)
            best[place] = min(best[place], time.perf_counter() - began)
    return round(best[0] / best[1], 2)


TOUCHED = """
import tensorflow as tf
layers = tf.keras.layers  # the first touch decides which Keras tf.keras is
import tensorflow_model_optimization as tfmot
net = tf.keras.Sequential([layers.Input((64,)), layers.Dense(10)])
try:
    print(type(tfmot.sparsity.keras.prune_low_magnitude(net)).__name__)
except Exception as error:
    print(f"{type(error).__name__}: {' '.join(str(error).split())[:50]}")
"""


def touched_first():
    """In a process of its own: tf.keras was used before the toolkit was imported."""
    clean = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    done = subprocess.run([sys.executable, "-c", TOUCHED], capture_output=True, text=True,
                          check=True, env=clean)
    return done.stdout.strip()


record = {"versions": {name: metadata.version(name) for name in (
    "tensorflow", "keras", "tf-keras", "tensorflow-model-optimization", "numpy")}}
try:
    import tensorflow_model_optimization as tfmot
    record["import"] = "works"
except Exception as error:
    record["import"] = first_line(error)
else:
    prune = tfmot.sparsity.keras.prune_low_magnitude
    quantize = tfmot.quantization.keras.quantize_model
    record["prune keras"] = attempt(lambda: type(prune(small(keras))).__name__)
    record["prune tf.keras"] = attempt(lambda: type(prune(small(tf.keras))).__name__)
    record["touched first"] = touched_first()
    record["set by the import"] = os.environ.get("TF_USE_LEGACY_KERAS")
    record["prune tf_keras"] = attempt(lambda: type(prune(small(tf_keras))).__name__)
    record["quantize keras"] = attempt(lambda: type(quantize(small(keras))).__name__)
    record["quantize tf_keras"] = attempt(lambda: type(quantize(small(tf_keras))).__name__)
    record["kernels after quantize"] = attempt(lambda: sorted(
        {w.dtype.name for w in quantize(small(tf_keras)).weights if len(w.shape) == 2}))
    record["converted by Lite"] = attempt(lambda: lite_kernels(quantize(small(tf_keras))))

    net = fitted()
    record["before"] = {"accuracy": accuracy(net), "bytes, compressed": sizes(net),
                        "zeros": zeros(net)}
    schedule = tfmot.sparsity.keras.ConstantSparsity(TARGET, begin_step=0, frequency=10)
    pruned = prune(net, pruning_schedule=schedule)
    pruned.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                   metrics=["accuracy"])
    pruned.fit(images[train], labels[train], epochs=10, verbose=0,
               callbacks=[tfmot.sparsity.keras.UpdatePruningStep()])
    wrapped = sizes(pruned)
    stripped = tfmot.sparsity.keras.strip_pruning(pruned)
    stripped.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                     metrics=["accuracy"])
    record["still wrapped"] = {"bytes, compressed": wrapped}
    record["pruned"] = {"accuracy": accuracy(stripped), "bytes, compressed": sizes(stripped),
                        "zeros": zeros(stripped)}
    record["shapes stay"] = ([w.shape for w in net.get_weights()]
                             == [w.shape for w in stripped.get_weights()])
    record["time, pruned / before"] = time_ratio([tf.function(each) for each in (stripped, net)])
    record["the same in Lite"] = time_ratio([lite_call(each) for each in (stripped, net)])
print(json.dumps(record))
