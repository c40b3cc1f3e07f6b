# SPDX-License-Identifier: Apache-2.0
"""Batches of sequences as their tokens, one behind the other, with where each sequence begins: what PyTorch's jagged
nested tensors have as ``values()`` and ``offsets()``, TensorFlow's RaggedTensor as ``values`` and ``row_splits``, and
Arrow's lists as ``values`` and ``offsets``.

In: such arrays, and the shapes of padded ones. Out: padded arrays and their mask, and the way back. Errors are
errors.InputError, with the input's name.
"""

import numpy as np

from . import errors


class Splits:
    """Where the sequences of a batch begin: sequence n has the tokens from splits[n] to splits[n + 1] - 1.

    ``batch`` and ``length`` are the least and the greatest that the padded tensors may have (None for any): they are
    padded no further than that. There may be fewer sequences than ``batch``.
    """

    def __init__(self, splits, batch: tuple[int, int | None], length: tuple[int, int | None]):
        given = np.asarray(splits)
        if given.ndim != 1 or given.size == 0 or not np.issubdtype(given.dtype, np.integer):
            raise errors.InputError(
                f"splits are {given.dtype} {list(given.shape)}; they are whole numbers, where each sequence begins, "
                "and behind them how many tokens there are"
            )
        lengths = np.diff(given)
        if given[0] != 0:
            raise errors.InputError(f"splits begin with {given[0]}; the first sequence begins at 0")
        if (down := np.flatnonzero(lengths < 0)).size:
            at = int(down[0])
            raise errors.InputError(f"splits do not ascend: behind {given[at]} stands {given[at + 1]}")
        if batch[1] is not None and lengths.size > batch[1]:
            raise errors.InputError(f"splits are of {lengths.size} sequences; the model takes {batch[1]} at most")
        if length[1] is not None and lengths.size and lengths.max() > length[1]:
            at = int(lengths.argmax())
            raise errors.InputError(f"sequence {at} has {lengths[at]} tokens; the model takes {length[1]} at most")
        self.sequences, self.tokens = lengths.size, int(given[-1])
        self.mask = np.zeros((max(batch[0], lengths.size), max(length[0], lengths.max(initial=0))), bool)
        self.mask[: lengths.size] = np.arange(self.mask.shape[1]) < lengths[:, None]

    def padded(self, name: str, array, shape: tuple[int, ...]) -> np.ndarray:
        """The rows of tokens [tokens, ...] as a tensor [batch, length, ...] with zeros between. ``shape`` is what the
        model takes, where a dimension that is open is -1.
        """
        array = np.asarray(array)
        if array.ndim != len(shape) - 1 or not all(
            size in (-1, given) for size, given in zip((self.tokens, *shape[2:]), array.shape, strict=True)
        ):
            raise errors.InputError(
                f"the input {name} has the shape {list(array.shape)}; as rows of tokens it is "
                f"{[self.tokens, *shape[2:]]}, for {self.tokens} tokens"
            )
        out = np.zeros((*self.mask.shape, *array.shape[1:]), array.dtype)
        out[self.mask] = array
        return out

    def packed(self, array: np.ndarray) -> np.ndarray:
        """The rows of tokens of a padded tensor; of one with a row for each sequence these; all else as it is."""
        if array.shape[:2] == self.mask.shape:
            return array[self.mask]
        if array.ndim and array.shape[0] == self.mask.shape[0]:
            return array[: self.sequences]
        return array
