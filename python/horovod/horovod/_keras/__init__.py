"""What horovod.keras and horovod.tensorflow.keras are made of: one code for all Kerases."""
