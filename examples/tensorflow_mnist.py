"""The script that Horovod became known by: horovodrun -np 4 python tensorflow_mnist.py

Nothing in it knows of corro. It is one of TensorFlow 1: a graph, a session, and what Horovod adds
to them. examples/kubernetes/mpijob_v1alpha2_horovod.yaml starts it on Kubernetes. The images are
Fashion-MNIST of Debian's package dataset-fashion-mnist.
"""

import argparse
import gzip

import numpy as np
import tensorflow.compat.v1 as tf

import horovod.tensorflow as hvd

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
parser.add_argument("--steps", type=int, default=2000, help="of one rank; divided among them")
parser.add_argument("--batch", type=int, default=64, help="images a rank and step")
parser.add_argument("--checkpoints", default="./checkpoints", help="written by rank 0 alone")
args = parser.parse_args()


def load(kind: str) -> tuple[np.ndarray, np.ndarray]:
    def read(name: str, header: int) -> np.ndarray:
        with gzip.open(f"{args.data}/{kind}-{name}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    images = read("images-idx3", 16).reshape(-1, 28, 28, 1)
    return (images.astype(np.float32) / 255 - 0.286) / 0.353, read("labels-idx1", 8)


def network(images: tf.Tensor) -> tf.Tensor:
    """Returns the scores of the ten classes. images: [N, 28, 28, 1]"""

    def weights(name: str, *shape: int) -> tf.Tensor:
        return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer())

    x = tf.nn.relu(tf.nn.conv2d(images, weights("first", 3, 3, 1, 16), 1, "SAME"))
    x = tf.nn.max_pool2d(x, 2, 2, "SAME")
    x = tf.nn.relu(tf.nn.conv2d(x, weights("second", 3, 3, 16, 32), 1, "SAME"))
    x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "SAME"), [-1, 7 * 7 * 32])
    x = tf.nn.relu(x @ weights("hidden", 7 * 7 * 32, 64))
    return x @ weights("classes", 64, 10)


hvd.init()
tf.disable_eager_execution()

# One GPU for each process of a host; without one these lines do nothing.
config = tf.ConfigProto()
config.gpu_options.allow_growth = True
config.gpu_options.visible_device_list = str(hvd.local_rank())

images = tf.placeholder(tf.float32, [None, 28, 28, 1])
labels = tf.placeholder(tf.int32, [None])
scores = network(images)
loss = tf.losses.sparse_softmax_cross_entropy(labels, scores)
right = tf.reduce_mean(tf.cast(tf.nn.in_top_k(scores, labels, 1), tf.float32))

# All ranks together see as many more images in a step, so the rate is scaled, too.
optimizer = tf.train.AdagradOptimizer(0.01 * hvd.size())
optimizer = hvd.DistributedOptimizer(optimizer)
global_step = tf.train.get_or_create_global_step()
train = optimizer.minimize(loss, global_step=global_step)

hooks = [
    hvd.BroadcastGlobalVariablesHook(0),  # All ranks start from rank 0's weights.
    tf.train.StopAtStepHook(last_step=args.steps // hvd.size()),
]
# Rank 0 alone saves, or the others would write over its files.
checkpoints = args.checkpoints if hvd.rank() == 0 else None

all_images, all_labels = load("train")
order = np.random.default_rng(hvd.rank())  # Another one on every rank.
with tf.train.MonitoredTrainingSession(
    checkpoint_dir=checkpoints, config=config, hooks=hooks
) as session:
    while not session.should_stop():
        batch = order.integers(len(all_images), size=args.batch)
        fed = {images: all_images[batch], labels: all_labels[batch]}
        _, step, reached = session.run([train, global_step, loss], fed)
        if hvd.rank() == 0 and step % 10 == 0:
            print(f"step {step} loss {reached:.3f}", flush=True)

if hvd.rank() == 0:
    test_images, test_labels = load("t10k")
    with tf.Session(config=config) as session:
        tf.train.Saver().restore(session, tf.train.latest_checkpoint(args.checkpoints))
        fed = {images: test_images, labels: test_labels}
        accuracy, steps = session.run([right, global_step], fed)
    print(f"demo: accuracy={accuracy:.4f} ranks={hvd.size()} steps={steps}")
