// SPDX-License-Identifier: Apache-2.0

package dnnl

// trim leaves out the ends of a convolution's kernel that only ever meet padding: with depth 1 and padding 1, two
// thirds of a 3x3x3 kernel. in and out are the spatial sizes of data and result. The packed weights are as much
// smaller, and oneDNN's kernels as much faster as they do not see what they would skip. An axis that is free is left as
// it is: taps that meet nothing where it is short do where it is longer.
func (o *operation) trim(in, out []int64, free []bool) {
	dims := len(o.strides)
	first := len(o.weightDims) - dims
	for axis := range dims {
		if free[axis] {
			continue
		}
		from, to := taps(in[axis], out[axis], o.weightDims[first+axis], o.strides[axis], o.dilation[axis],
			o.padding[axis])
		front := o.padding[axis] - from*o.dilation[axis]
		back := o.padding[dims+axis] - (o.weightDims[first+axis]-to)*o.dilation[axis]
		// Where strides jump over the data, the first result may begin behind it: nothing in oneDNN says so.
		if from >= to || front < 0 || back < 0 {
			continue
		}
		o.padding[axis], o.padding[dims+axis] = front, back
		o.weightOffset += from * o.weightStrides[first+axis]
		o.weightDims[first+axis] = to - from
	}
}

// taps are those of a kernel, from the first to before the last, that meet data for any of the results along an axis.
func taps(in, out, kernel, stride, dilation, padding int64) (from, to int64) {
	meets := func(tap int64) bool {
		// The first result whose tap does not lie in front of the data; the following ones lie further behind.
		result := (padding - tap*dilation + stride - 1) / stride
		result = max(result, 0)
		return result < out && result*stride-padding+tap*dilation < in
	}
	for from = 0; from < kernel && !meets(from); from++ {
	}
	for to = kernel; to > from && !meets(to-1); to-- {
	}
	return from, to
}
