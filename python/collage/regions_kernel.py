# SPDX-License-Identifier: Apache-2.0
"""TVM's kernel for ``vision.roi_align`` on processors, where each region says itself how many samples it takes.

TVM 0.19's own keeps the samples of a region in memory for as many as a region within the image has. Of a larger one it
writes beyond that, and ends the process. This one keeps none: it goes through the channels sample by sample.
"""

import tvm
from tvm.relay import op as _op
from tvm.relay.op.strategy import x86
from tvm.relay.op.strategy.generic import roi_align_strategy, wrap_compute_roi_align, wrap_topi_schedule
from tvm.te import hybrid
from tvm.topi import generic

# ruff: noqa: F821  (hybrid script has names of its own)


@hybrid.script
def _regions(data, rois, count, size, scale, greatest):
    channels = data.shape[1]
    height = data.shape[2]
    width = data.shape[3]
    output = output_tensor((count, channels, size[0], size[1]), data.dtype)
    for n in parallel(count):
        image = int32(rois[n, 0])
        left = rois[n, 1] * scale
        top = rois[n, 2] * scale
        bin_h = max(rois[n, 4] * scale - top, 1.0) / size[0]
        bin_w = max(rois[n, 3] * scale - left, 1.0) / size[1]
        rows = int32(bin_h)
        if rows * 1.0 < bin_h:
            rows += 1
        columns = int32(bin_w)
        if columns * 1.0 < bin_w:
            columns += 1
        for ph in range(size[0]):
            for pw in range(size[1]):
                for c in range(channels):
                    output[n, c, ph, pw] = 0.0
                    if greatest == 1:
                        output[n, c, ph, pw] = ninf("float32")
                for iy in range(rows):
                    y = top + ph * bin_h + (iy + 0.5) * bin_h / rows
                    if y < -1.0 or y > height:
                        if greatest == 1:
                            for c in range(channels):
                                output[n, c, ph, pw] = max(output[n, c, ph, pw], 0.0)
                    else:
                        if y < 0.0:
                            y = 0.0
                        y_low = int32(y)
                        y_high = y_low + 1
                        if y_low >= height - 1:
                            y_high = height - 1
                            y_low = y_high
                            y = float32(y_low)
                        below = y - y_low
                        for ix in range(columns):
                            x = left + pw * bin_w + (ix + 0.5) * bin_w / columns
                            if x < -1.0 or x > width:
                                if greatest == 1:
                                    for c in range(channels):
                                        output[n, c, ph, pw] = max(output[n, c, ph, pw], 0.0)
                            else:
                                if x < 0.0:
                                    x = 0.0
                                x_low = int32(x)
                                x_high = x_low + 1
                                if x_low >= width - 1:
                                    x_high = width - 1
                                    x_low = x_high
                                    x = float32(x_low)
                                beside = x - x_low
                                for c in range(channels):
                                    value = (1.0 - below) * (
                                        (1.0 - beside) * data[image, c, y_low, x_low]
                                        + beside * data[image, c, y_low, x_high]
                                    ) + below * (
                                        (1.0 - beside) * data[image, c, y_high, x_low]
                                        + beside * data[image, c, y_high, x_high]
                                    )
                                    if greatest == 1:
                                        output[n, c, ph, pw] = max(output[n, c, ph, pw], value)
                                    if greatest == 0:
                                        output[n, c, ph, pw] += value / (rows * 1.0 * columns)
    return output


def _roi_align(data, rois, pooled_size, spatial_scale, mode, sample_ratio=-1):
    """As topi.x86.roi_align_nchw, where sample_ratio is not positive."""
    scale, greatest = tvm.tir.const(spatial_scale, "float32"), tvm.tir.const(int(mode == b"max"), "int32")
    return _regions(data, rois, rois.shape[0], tvm.runtime.convert(pooled_size), scale, greatest)


@roi_align_strategy.register("cpu")
def roi_align_strategy_cpu(attrs, inputs, out_type, target):
    """How ``vision.roi_align`` is computed: TVM's way but for regions that say how many samples they take."""
    if attrs.sample_ratio > 0 or attrs.layout != "NCHW":
        return x86.roi_align_strategy_cpu(attrs, inputs, out_type, target)
    strategy = _op.OpStrategy()
    strategy.add_implementation(
        wrap_compute_roi_align(_roi_align), wrap_topi_schedule(generic.schedule_roi_align), name="roi_align.collage"
    )
    return strategy
