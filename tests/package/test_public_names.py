"""The public API is listed here; no other package exports names; imports have no cycles."""

import ast
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]

PUBLIC = {
    "distrain": "ColumnSchema DistrainError Dataset JobSpec Loader Run Schema Tags fit load",
    "distrain.client": (
        "Artifact Client Cluster Event Job Me NotAuthorised NotFinished NotFound Records "
        "RequestRefused Retries ServiceError ServiceUnavailable Token Validation WaitTimedOut"
    ),
    "distrain.jobs.spec": (
        "CustomSpec DataSpec DcnSpec DcnV2Spec DeepFmSpec DlrmSpec JobSpec MlpSpec ModelSpec "
        "TrainSpec WideDeepSpec dump_yaml load_spec parse_spec"
    ),
    "distrain.loader": "Dataset EpochIterator FetchOptions Loader LoaderStats Transform",
    "distrain.metrics": (
        "BinaryMetrics BinaryReport ExchangeStats GroupedReport ItemLists Metric "
        "MulticlassReport RankingMetrics RankingReport RegressionReport TopItems top_items"
    ),
    "distrain.models": (
        "Blueprint ClickModel Embeddings InputBlock SavedModel TableFactory build_model load_model"
    ),
    "distrain.models.blocks": (
        "Aggregate BatchNorm BilinearFusion Block CausalTransformer Chain CompressedInteraction "
        "ContinuousFeatures CrossBlock DLRMBlock Dice DotProductInteraction Dropout EventBlock "
        "FMBlock FeatureGate FieldAttention FieldVectors Filter HSTUBlock HashedCross L2Norm "
        "LogitsTemperatureScaler MLPBlock MMoEBlock MaskNetBlock MemberMLP PLEBlock "
        "ParallelBlock "
        "PiecewiseLinear TargetAttention TargetTransformer"
    ),
    "distrain.models.embeddings": (
        "Averaging EmbeddingCollection Peers SparseOptimizer TableColumn"
    ),
    "distrain.models.heads": (
        "BinaryClassificationTask Candidates DotProductTask ESMMTask ItemRetrievalTask "
        "MemberTask MultiTask MulticlassTask RegressionTask Target Task"
    ),
    "distrain.prep": (
        "Bucketize Categorify Clip ColumnGroup ColumnSpec CountEncode FeatureConfig FillMissing "
        "HashBucket History ListSlice LogOp MissingFlag Normalize PrepRequest PrepResult "
        "QuantileBuckets TargetEncode Workflow infer_features output_schema prepare"
    ),
    "distrain.schema": "ColumnSchema Schema Tags TargetKind criteo_schema find_schema",
    "distrain.train.checkpoint": (
        "CheckpointDir CheckpointWriter RankStore TrainingState load_newest"
    ),
}
"""What users import, by package; docs and examples use no other name of a package."""

INTERNAL = {"distrain.models.embeddings.kernels"}
"""Packages used as one interface by their neighbours."""


def test_public_names_are_importable():
    for package, names in PUBLIC.items():
        module = import_module(package)
        missing = [name for name in names.split() if not hasattr(module, name)]
        assert not missing, package


def test_no_other_package_exports_names():
    for file in (ROOT / "distrain").rglob("__init__.py"):
        package = ".".join(file.parent.relative_to(ROOT).parts)
        exported = {
            alias.asname
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if alias.asname == alias.name
        }
        if package not in INTERNAL:
            assert exported <= set(PUBLIC.get(package, "").split()), package


def test_no_modules_import_each_other_in_circles():
    graph = grimp.build_graph("distrain", cache_dir=None)
    imports = {
        module: {
            imported
            for imported in graph.find_modules_directly_imported_by(module)
            # A package's `__init__` may import its own modules, and these other modules of it.
            if not module.startswith(f"{imported}.") and not imported.startswith(f"{module}.")
        }
        for module in graph.modules
    }
    TopologicalSorter(imports).prepare()  # raises CycleError with the circle
