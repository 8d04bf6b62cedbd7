# /// script
# requires-python = "==3.11.*"
# dependencies = [
#     "tensorflow-cpu==2.15.1",
#     "keras==2.15.0",
#     "tensorflow-estimator==2.15.0",
#     "numpy==1.26.4",
#     "scikit-learn==1.5.2",
# ]
# ///
"""What the real ``tf.estimator`` does, on the last TensorFlow that has it.

``python -m ci legacy`` runs this in an environment of its own, and writes what it prints, one JSON
object, into the recorded cell of the page ``estimator-vs-keras``, which rebuilds the same job.
The job is softmax regression on scikit-learn's digits: weights begin at zero and batches come in
order, so that every number can be compared.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from importlib import metadata
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf
from sklearn.datasets import load_digits

BATCH, RATE, STEPS = 64, 0.5, 60
digits = load_digits()
images = (digits.data / 16).astype("float32")  # shape (1797, 64)
labels = digits.target.astype("int32")
v1 = tf.compat.v1
halves = [tf.config.LogicalDeviceConfiguration()] * 2  # for the two replicas of `mirrored`
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)


class Listen(logging.Handler):
    """Keep the warnings that TensorFlow logs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


listen = Listen()
logging.getLogger("tensorflow").handlers = [listen]


def train_input():
    data = tf.data.Dataset.from_tensor_slices(({"pixels": images[:1408]}, labels[:1408]))
    return data.batch(BATCH).repeat()


def test_input():
    data = tf.data.Dataset.from_tensor_slices(({"pixels": images[1408:]}, labels[1408:]))
    return data.batch(BATCH)


def served_input():
    pixels = {"pixels": v1.placeholder(tf.float32, (None, 64), name="pixels")}
    return tf.estimator.export.ServingInputReceiver(pixels, pixels)


def model_fn(features, labels, mode, params):
    pixels = features["pixels"]
    kernel = v1.get_variable("kernel", (64, 10), initializer=v1.zeros_initializer())
    bias = v1.get_variable("bias", (10,), initializer=v1.zeros_initializer())
    logits = pixels @ kernel + bias
    classes = tf.argmax(logits, axis=1)
    if mode == tf.estimator.ModeKeys.PREDICT:
        answer = {"classes": classes, "chances": tf.nn.softmax(logits)}
        return tf.estimator.EstimatorSpec(mode, predictions=answer, export_outputs={
            "serving_default": tf.estimator.export.PredictOutput(answer)})
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    if params.get("nan"):
        loss = loss * float("nan")
    if mode == tf.estimator.ModeKeys.EVAL:
        accuracy = v1.metrics.accuracy(labels, classes)
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    step = v1.train.GradientDescentOptimizer(params["rate"]).minimize(
        loss, v1.train.get_global_step())
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)


class Losses(v1.train.SessionRunHook):
    """Keep the loss of every step."""

    def __init__(self) -> None:
        self.kept: list[float] = []

    def before_run(self, context):
        return v1.train.SessionRunArgs(v1.get_collection(v1.GraphKeys.LOSSES)[0])

    def after_run(self, context, values):
        self.kept.append(float(values.results))


class Break(v1.train.SessionRunHook):
    """Raise an error after step 45, once."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.count = 0

    def after_run(self, context, values):
        self.count += 1
        if self.count == 45 and self.error is not None:
            raise self.error


def make(folder, **params):
    config = tf.estimator.RunConfig(folder, save_checkpoints_steps=30, keep_checkpoint_max=2)
    return tf.estimator.Estimator(model_fn, config=config, params={"rate": RATE, **params})


def new() -> str:
    """Return a new empty folder."""
    return tempfile.mkdtemp()


def shown(losses):
    """The first loss and every twentieth."""
    return {str(n): round(losses[n - 1], 5) for n in (1, *range(20, len(losses) + 1, 20))}


def global_step(estimator):
    return int(estimator.get_variable_value("global_step"))


def rounded(scores):
    return {name: round(float(scores[name]), 5) for name in ("accuracy", "loss")}


def saved_steps(folder):
    return sorted(int(path.stem.split("-")[1]) for path in Path(folder).glob("model.ckpt-*.index"))


def export(estimator):
    """Export, load what was exported, and return its answers to five images."""
    place = estimator.export_saved_model(new(), served_input).decode()
    signatures = tf.saved_model.load(place).signatures
    served = signatures["predict" if "predict" in signatures else "serving_default"]
    return served(pixels=tf.constant(images[1408:1413]))


def custom(folder):
    """Train, resume, evaluate, predict, export; train once more in a folder that is full."""
    first, second, straight, third = Losses(), Losses(), Losses(), Losses()
    make(folder).train(train_input, hooks=[first], steps=STEPS)
    halfway = make(folder).evaluate(test_input)
    make(folder).train(train_input, hooks=[second], max_steps=2 * STEPS)  # a new object goes on
    make(new()).train(train_input, hooks=[straight], steps=2 * STEPS)
    assert first.kept == straight.kept[:STEPS]
    estimator = make(folder)
    predicted = [int(one["classes"]) for one in estimator.predict(test_input)][:5]
    assert export(estimator)["classes"].numpy().tolist() == predicted
    make(folder, rate=0.1).train(train_input, hooks=[third], max_steps=2 * STEPS)
    return {
        "losses": shown(straight.kept), "losses_resumed": shown(second.kept),
        "tested": rounded(halfway), "predicted": predicted,
        "full_folder": len(third.kept),
    }


def graph_of_each_call(folder):
    """Count how often model_fn is called: each of the four calls builds a graph of its own."""
    calls = []

    def counted(features, labels, mode, params):
        calls.append(mode)
        return model_fn(features, labels, mode, params)

    estimator = tf.estimator.Estimator(counted, folder, params={"rate": RATE})
    estimator.train(train_input, steps=1)
    estimator.evaluate(test_input)
    estimator.train(train_input, steps=1)
    next(estimator.predict(test_input))
    return calls


def outside(folder):
    """Use a variable that was made outside model_fn."""
    kernel = tf.Variable(tf.zeros((64, 10)))

    def uses_it(features, labels, mode):
        loss = v1.losses.sparse_softmax_cross_entropy(labels, features["pixels"] @ kernel)
        step = v1.train.GradientDescentOptimizer(RATE).minimize(loss, v1.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=step)

    try:
        tf.estimator.Estimator(uses_it, folder).train(train_input, steps=1)
    except Exception as error:
        return type(error).__name__
    return "no error"


def broken(error, **params):
    """Train with an error after step 45; return what comes out, and the steps run and saved."""
    folder, hook = new(), Break(error)
    try:
        make(folder, **params).train(train_input, hooks=[hook], steps=STEPS)
        said = "no error"
    except Exception as problem:
        said = type(problem).__name__
    return [said, hook.count, saved_steps(folder)[-1]]


def premade(folder):
    """A premade Estimator as it comes; then with the learning rate of its TF 1 version."""
    column = tf.feature_column.numeric_column("pixels", shape=(64,))
    kept = {}
    for name, choice in (("as it comes", {}), ("rate 0.05", {
            "optimizer": lambda: tf.keras.optimizers.legacy.Adagrad(0.05)})):
        estimator = tf.estimator.DNNClassifier(
            [32], [column], n_classes=10,
            config=tf.estimator.RunConfig(str(Path(folder, name)), tf_random_seed=0), **choice)
        estimator.train(train_input, steps=200)
        kept[name] = round(float(estimator.evaluate(test_input)["accuracy"]), 3)
    answers = [int(one["class_ids"][0]) for one in estimator.predict(test_input)][:5]
    served = export(estimator)["class_ids"].numpy()[:, 0].tolist()
    return kept | {"served as predicted": served == answers}


def mirrored():
    """The same model_fn under two replicas, which are two logical CPUs: same code, same numbers?"""
    kept = {}
    for name, batch in (("one device", BATCH), ("two replicas", BATCH),
                        ("two, half the batch", BATCH // 2)):
        strategy = None if name == "one device" else tf.distribute.MirroredStrategy(
            ["/cpu:0", "/cpu:1"])
        config = tf.estimator.RunConfig(new(), train_distribute=strategy,
                                        session_config=v1.ConfigProto(
                                            device_count={"CPU": 2}, allow_soft_placement=True))
        estimator = tf.estimator.Estimator(model_fn, config=config, params={"rate": RATE})

        def source(size=batch):
            data = tf.data.Dataset.from_tensor_slices(
                ({"pixels": images[:1408]}, labels[:1408]))
            return data.batch(size).repeat()

        try:
            estimator.train(source, steps=STEPS)
            kept[name] = round(float(estimator.evaluate(test_input)["loss"]), 5)
        except Exception as error:
            kept[name] = type(error).__name__
    return kept


def keras_model():
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(64, name="pixels"),
                                 tf.keras.layers.Dense(10, kernel_initializer="zeros")])
    model.compile(tf.keras.optimizers.legacy.SGD(RATE),
                  tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def from_keras(folder):
    try:
        estimator = tf.keras.estimator.model_to_estimator(keras_model(), model_dir=folder)
        estimator.train(train_input, steps=STEPS)
        return round(float(estimator.evaluate(test_input)["loss"]), 5)
    except Exception as error:
        return type(error).__name__


def keras_alone():
    """The loss after training and testing the Keras model itself."""
    model = keras_model()
    model.fit(train_input(), steps_per_epoch=STEPS, verbose=0)
    return round(float(model.evaluate(test_input(), verbose=0)), 5)


def load_weights():
    """What load_weights says to checkpoints of Estimators, by model_fn and by a Keras model."""
    folders = {"model_fn": new(), "keras": new()}
    make(folders["model_fn"]).train(train_input, steps=STEPS)
    from_keras(folders["keras"])
    kept = {}
    for name, folder in folders.items():
        model = keras_model()
        try:
            model.load_weights(tf.train.latest_checkpoint(folder))
            kept[name] = round(float(model.evaluate(test_input(), verbose=0)), 5)
        except Exception as error:
            kept[name] = type(error).__name__
    return kept


LATER = """
import json, os, warnings
warnings.simplefilter("ignore")
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_USE_LEGACY_KERAS="1")
import tensorflow as tf, tf_keras

def outcome(call):
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "works"

def package():
    import tensorflow_estimator
    tensorflow_estimator.estimator.Estimator

print(json.dumps({
    "tensorflow": tf.__version__, "tf_keras": tf_keras.__version__,
    "tf.keras": tf.keras.__name__.split(".")[0],
    "tf.compat.v1.layers.dense": outcome(lambda: tf.compat.v1.layers.dense),
    "tf.estimator": outcome(lambda: tf.estimator),
    "tensorflow_estimator": outcome(package)}))
"""


def later():
    """The same questions to a TensorFlow without Estimator, beside Keras 2 and the old package."""
    wanted = ("tensorflow-cpu==2.21.0", "tf-keras==2.21.0", "tensorflow-estimator==2.15.0")
    command = [os.environ["UV"], "run", "--quiet", "--isolated", "--no-project", "--python", "3.11",
               "--no-python-downloads", *(part for name in wanted for part in ("--with", name)),
               "python", "-c", LATER]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def backend(wish):
    """The backend of tf.keras when another one is asked for."""
    code = "import tensorflow as tf; print(tf.keras.backend.backend())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          check=True, env={**os.environ, "KERAS_BACKEND": wish})
    return done.stdout.strip()


class Clock(v1.train.SessionRunHook):
    """Note the CPU time of the process at the end of step 100 and of step 600."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.count = 0

    def after_run(self, context, values):
        self.count += 1
        if self.count in (100, 600):
            self.times.append(time.process_time())


def time_of_estimator():
    """The CPU time of 500 steps, as of the two functions below."""
    clock, config = Clock(), tf.estimator.RunConfig(new(), save_checkpoints_steps=10_000)
    estimator = tf.estimator.Estimator(model_fn, config=config, params={"rate": RATE})
    estimator.train(train_input, hooks=[clock], steps=600)
    return clock.times[1] - clock.times[0]


def time_of_fit(steps_per_call):
    model = keras_model()
    model.compile(model.optimizer, model.loss, steps_per_execution=steps_per_call)
    model.fit(train_input(), steps_per_epoch=100, verbose=0)
    began = time.process_time()
    model.fit(train_input(), steps_per_epoch=500, verbose=0)
    return time.process_time() - began


def time_of_loop():
    model = keras_model()

    @tf.function
    def step(batches):
        features, wanted = next(batches)
        with tf.GradientTape() as tape:
            loss = model.loss(wanted, model(features["pixels"]))
        weights = model.trainable_variables
        slopes = tape.gradient(loss, weights)
        model.optimizer.apply_gradients(zip(slopes, weights, strict=True))

    batches = iter(train_input())
    for count in range(600):
        if count == 100:
            began = time.process_time()
        step(batches)
    return time.process_time() - began


def speed():
    """The CPU time of a step of Estimator and of fit, as multiples of a compiled loop's."""
    spent = [(time_of_loop(), time_of_estimator(), time_of_fit(1), time_of_fit(10))
             for _ in range(5)]
    loop, *others = (min(times) for times in zip(*spent, strict=True))
    return {name: round(least / loop, 2) for name, least in zip(
        ("estimator", "fit", "fit, 10 steps per call"), others, strict=True)}


def estimator_job(folder):
    """Train with checkpoints, test, predict and export, as the two functions below; return scores.

    `names` counts what each of the three takes, with the functions that it uses.
    """
    estimator = tf.estimator.Estimator(model_fn, folder, params={"rate": RATE})
    estimator.train(train_input, steps=STEPS)
    scores = estimator.evaluate(test_input)
    answers = [int(one["classes"]) for one in estimator.predict(test_input)]
    estimator.export_saved_model(folder, served_input)
    return scores, answers


def premade_job(folder):
    pixels = tf.feature_column.numeric_column("pixels", shape=(64,))
    estimator = tf.estimator.LinearClassifier(
        [pixels], folder, n_classes=10, optimizer=lambda: tf.keras.optimizers.legacy.SGD(RATE))
    estimator.train(train_input, steps=STEPS)
    scores = estimator.evaluate(test_input)
    answers = [int(one["class_ids"][0]) for one in estimator.predict(test_input)]
    estimator.export_saved_model(folder, served_input)
    return scores, answers


def keras_job(folder):
    model = tf.keras.Sequential([tf.keras.layers.InputLayer(64, name="pixels"),
                                 tf.keras.layers.Dense(10, kernel_initializer="zeros")])
    model.compile(tf.keras.optimizers.legacy.SGD(RATE), metrics=["accuracy"],
                  loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    backup = tf.keras.callbacks.BackupAndRestore(f"{folder}/backup")
    model.fit(train_input(), steps_per_epoch=STEPS, callbacks=[backup], verbose=0)
    scores = model.evaluate(test_input(), return_dict=True, verbose=0)
    answers = model.predict(test_input(), verbose=0).argmax(axis=1).tolist()
    model.export(f"{folder}/export")
    return scores, answers


def names_of_jobs():
    """How many names of TensorFlow the same job takes, three times; all give the same answers."""
    inputs = train_input, test_input
    jobs = {"model_fn": (estimator_job, model_fn, served_input),
            "premade": (premade_job, served_input), "keras": (keras_job,)}
    with contextlib.redirect_stdout(sys.stderr):  # where Keras says that it has exported
        results = [job(new()) for job, *_ in jobs.values()]
    for scores, answers in results:
        assert abs(scores["accuracy"] - results[0][0]["accuracy"]) < 1e-4
        assert answers == results[0][1]
    return {name: len(names(*inputs, *functions)) for name, functions in jobs.items()}


def names(*functions):
    """The names of TensorFlow that functions use."""
    found = set()
    for function in functions:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and id(node) not in inner:
                root, _, rest = ast.unparse(node).partition(".")
                if root in ("tf", "v1") and "(" not in rest:
                    found.add({"tf": "tf.", "v1": "tf.compat.v1."}[root] + rest)
    return sorted(found)


fields = [spec._fields for spec in (
    tf.estimator.EstimatorSpec, v1.estimator.tpu.TPUEstimatorSpec)]
advice = " ".join(tf.estimator.Estimator._tf_docs_inheritable_header.split())
lost = tf.errors.AbortedError(None, None, "a worker is lost")
record = {
    "versions": {name: metadata.version(name) for name in (
        "tensorflow-cpu", "keras", "tensorflow-estimator")},
    **custom(new()),
    "model_fn_calls": graph_of_each_call(new()),
    "outside": outside(new()),
    "aborted": broken(lost), "mistake": broken(ValueError("a mistake of your own")),
    "nan": broken(None, nan=True),
    "premade": premade(new()),
    "mirrored": mirrored(),
    "metrics_in_specs": [name for one in fields for name in one if "metric" in name],
    "from_keras": from_keras(new()), "keras_alone": keras_alone(),
    "theano_asked_for": backend("theano"),
    "step_times": speed(),
    "names_used": names_of_jobs(),
    "load_weights": load_weights(), "later": later(),
    "class_warns": [advice.split("Warning: ")[1].split(". ")[0],
                    advice[advice.index("no fixes"):].split(". ")[0]],
}
said = [line for line in listen.said if line.startswith("From ") and "Use tf.keras" in line]
record["other_warnings"] = [len(said), " ".join(said[0].split()).split("updating: ")[1]]
print(json.dumps(record))
