"""What img2dataset says of downloads that failed: the rows of its Parquet files whose status is not success."""

import logging
from collections.abc import Iterator
from pathlib import Path

from in2r.data.table_rows import read_table
from in2r.data.verdicts import MISSING, Verdict
from in2r.errors import InputError
from in2r.raw.places import Item
from in2r.raw.samples import Sample

log = logging.getLogger(__name__)

SUCCESS = "success"


def failed_downloads(file: Path, prefix: str) -> Iterator[Sample]:
    """Yield the rows of failed downloads, whose images are missing; none where it is another kind of file.

    Args:
        file: the Parquet file beside a tar or a folder; it may be absent.
        prefix: what names the tar or folder in the names of images.
    """
    if not file.is_file():
        return
    try:
        rows = read_table(file, ["key", "status", "caption"], ["url", "error_message"]).columns
    except InputError as error:
        log.warning("downloads that failed are not listed: %s", error)
        return
    for row, status in enumerate(rows["status"]):
        if status == SUCCESS:
            continue
        name = f"{prefix}/{rows['key'][row]}.jpg"
        fields = {column: values[row] for column, values in rows.items() if column != "caption"}
        detail = ": ".join(filter(None, [status or "no status", fields.get("error_message", "")]))
        item = Item(name, None, Verdict(name, MISSING, detail))
        yield Sample(item, [" ".join(rows["caption"][row].split())], fields)
