"""torch.export.pt2_archive.constants: the names of what an archive of an exported program holds."""

ARCHIVE_ROOT_NAME = "package"
ARCHIVE_FORMAT_PATH, ARCHIVE_FORMAT_VALUE = "archive_format", "pt2"
ARCHIVE_VERSION_PATH, ARCHIVE_VERSION_VALUE = "archive_version", "0"

MODELS_DIR = "models/"
MODELS_FILENAME_FORMAT = "models/{}.json"

AOTINDUCTOR_DIR, EXECUTORCH_DIR, MTIA_DIR = (
    "data/aotinductor/",
    "data/executorch/",
    "data/mtia",
)

WEIGHTS_DIR, WEIGHT_FILENAME_PREFIX = "data/weights/", "weight_"
WEIGHTS_CONFIG_FILENAME_FORMAT = "data/weights/{}_weights_config.json"

CONSTANTS_DIR, TENSOR_CONSTANT_FILENAME_PREFIX = "data/constants/", "tensor_"
CONSTANTS_CONFIG_FILENAME_FORMAT = "data/constants/{}_constants_config.json"
CUSTOM_OBJ_FILENAME_PREFIX, OPAQUE_OBJ_FILENAME_PREFIX = "custom_obj_", "opaque_obj_"

SAMPLE_INPUTS_DIR = "data/sample_inputs/"
SAMPLE_INPUTS_FILENAME_FORMAT = "data/sample_inputs/{}.pt"

EXTRA_DIR, MODULE_INFO_PATH = "extra/", "extra/module_info.json"

XL_MODEL_WEIGHTS_DIR = "xl_model_weights/"
XL_MODEL_WEIGHTS_PARAM_CONFIG_PATH = "xl_model_weights/model_param_config"
