"""Pictures, detector regions, clips, image backbones and the feature store."""
