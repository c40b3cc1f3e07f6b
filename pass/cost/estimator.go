// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"context"

	"github.com/collage-tvm/collage/pass/candidate"
)

// Workload is a candidate as something that can be compiled and run on its own.
type Workload struct {
	// Function is a relay.Function in TVM's JSON (node.SaveJSON). Its parameters are the candidate's inputs,
	// followed by the large constants.
	Function string
	// Constants are the parameters that stand for large constants. Whoever measures fills them with random values
	// and binds them inside the function, since weights that arrive as arguments are re-packed at each call.
	Constants []ConstantParam
	// Compiler is the region's Compiler attribute; "" for TVM.
	Compiler string
	// RTol and ATol are how far the result may be from TVM's.
	RTol, ATol float64
	// Narrow says that it computes in a narrower type than the network's (byoc.Narrow): RTol and ATol do not hold, and
	// only a result that is nothing like TVM's is wrong.
	Narrow bool
}

// ConstantParam is a parameter of a Workload that stands for a constant tensor.
type ConstantParam struct {
	Name  string  `json:"name"`
	Shape []int64 `json:"shape"`
	DType string  `json:"dtype"`
}

// Request asks for the cost of one candidate.
type Request struct {
	Key       Key
	Candidate *candidate.Candidate
	// Label names the candidate in progress messages ("dnnl.conv2d_bias_relu %12 on dnnl").
	Label string
	// Computation says what is measured, wherever it stands (Cost.Computation); may be "".
	Computation string
	// Build makes the workload. It calls TVM, so it is called on the goroutine that called Estimate, and only when
	// the cost is not known yet.
	Build func() (*Workload, error)
}

// Estimator gives costs. Its errors are for what makes the search as a whole impossible (no worker can be
// started, the store's disk is full, an interrupt); a candidate that cannot be used is a Cost with a Failure.
type Estimator interface {
	// Estimate returns one cost for each request, in the order of the requests. Requests with equal keys get the
	// same cost. On an error the costs found so far are returned with it; unknown ones are zero Costs.
	Estimate(ctx context.Context, requests []Request) ([]Cost, error)
}
