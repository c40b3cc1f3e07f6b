// SPDX-License-Identifier: Apache-2.0

package onednn

import "github.com/collage-tvm/collage/relay"

// Layer is what one match computes: *Convolution, *Product, *Pool, *Elementwise, *Binary, *Softmax, *LayerNorm or
// *BatchNorm. Values are named by their nodes in the graph.
type Layer any

// Convolution is a convolution or transposed convolution of one to three spatial dimensions.
type Convolution struct {
	// Operator is Relay's ("nn.conv2d_transpose").
	Operator   string
	Transposed bool
	// Scale is how often each pixel of the data is repeated along each spatial dimension before the convolution; nil
	// for not at all.
	Scale []int64
	// Dims is the number of spatial dimensions.
	Dims         int
	Data, Weight relay.NodeID
	// Strides and Dilation have one entry for each spatial dimension, Padding has all front sides and then all back
	// sides. Dilation 1 is none.
	Strides, Dilation, Padding []int64
	Groups                     int64
	// DataLayout and KernelLayout are Relay's ("NCHW", "OIHW").
	DataLayout, KernelLayout string
	Epilogue                 Epilogue
}

// Product is a product of matrices, or of batches of them.
type Product struct {
	// Operator is "nn.dense", whose right side [n, k] is transposed, or "nn.batch_matmul".
	Operator               string
	Left, Right            relay.NodeID
	TransposeA, TransposeB bool
	Epilogue               Epilogue
}

// Epilogue is what happens to a result before it is stored, in this order; NoNode and nil for what does not.
type Epilogue struct {
	// Bias has one value for each channel.
	Bias relay.NodeID
	// Sum is a residual value of the result's shape, which is added.
	Sum        relay.NodeID
	Activation *Elementwise
}

// Elementwise is a function of each element.
type Elementwise struct {
	// Function is one of relu (with the slope Alpha for what is negative), clip (to Alpha .. Beta), tanh, sigmoid, exp,
	// log, sqrt, abs, gelu (with erf), gelu_tanh, swish (x * sigmoid(x)), mish, hardswish (x * clip(x/6 + 1/2, 0, 1)),
	// hardsigmoid (clip(Alpha x + Beta, 0, 1)), grid (Alpha * clip(round(x / Alpha), Beta, Beta + 255)).
	Function    string
	Alpha, Beta float64
	// Data is the argument; NoNode in an Epilogue.
	Data relay.NodeID
}

// Binary is an operator on two tensors, which are broadcast.
type Binary struct {
	// Function is Relay's name: add, multiply, ...
	Function    string
	Left, Right relay.NodeID
}

// Pool is a pool in oneDNN's terms: explicit windows over explicit padding.
type Pool struct {
	// Kind is "max" or "avg".
	Kind string
	Dims int
	Data relay.NodeID
	// Size, Strides and Dilation have one entry for each spatial dimension, Padding has all front sides and then all
	// back sides.
	Size, Strides, Dilation, Padding []int64
	// IncludePadding says that averages count the padding.
	IncludePadding bool
	Layout         string
}

// Softmax is softmax along one axis, which is not negative.
type Softmax struct {
	Data relay.NodeID
	Axis int64
}

// LayerNorm is layer normalisation over the last axis.
type LayerNorm struct {
	Data, Gamma, Beta relay.NodeID
	Epsilon           float64
}

// BatchNorm is batch normalisation in inference form, the channels along axis 1.
type BatchNorm struct {
	Data, Gamma, Beta, Mean, Variance relay.NodeID
	Epsilon                           float64
}
