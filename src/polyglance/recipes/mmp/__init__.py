"""MMP: on extracted features of clips or images (`train`), and on photos (`train_photos`)."""
