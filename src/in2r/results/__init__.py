"""What a run has to show: test results, scores of its pairs, the model."""

from in2r.results.best import load_best
from in2r.results.evaluate import evaluate_run
from in2r.results.export import export_model
from in2r.results.imported import import_checkpoint
from in2r.results.scores import score_run
from in2r.results.together import evaluate_runs

__all__ = ["evaluate_run", "evaluate_runs", "export_model", "import_checkpoint", "load_best", "score_run"]
