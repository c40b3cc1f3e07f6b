// SPDX-License-Identifier: Apache-2.0

package measure

import "github.com/collage-tvm/collage/pass/cost"

// The messages to a worker. Each is one line of JSON.

type helloMessage struct {
	ID int    `json:"id"`
	Op string `json:"op"` // "hello"
}

// measureMessage asks for the latency of one function. Key seeds the inputs and the constants, so that every
// backend sees the same ones; the worker keeps TVM's outputs under it.
type measureMessage struct {
	ID             int                  `json:"id"`
	Op             string               `json:"op"` // "measure"
	Function       string               `json:"function"`
	Constants      []cost.ConstantParam `json:"constants"`
	Compiler       string               `json:"compiler"`
	Target         string               `json:"target"`
	OptLevel       int                  `json:"opt_level"`
	DisabledPasses []string             `json:"disabled_passes"`
	Key            string               `json:"key"`
	Threads        int                  `json:"threads"`
	Samples        int                  `json:"samples"` // 0: only build, run and check
	MinSampleMs    float64              `json:"min_sample_ms"`
	Check          bool                 `json:"check"`
	// WarmMs is for how long something runs before samples of it are taken.
	WarmMs float64 `json:"warm_ms"`
	// RTol is relative to the expected element, ATol to the greatest expected one.
	RTol float64 `json:"rtol"`
	ATol float64 `json:"atol_of_greatest"`
	// Narrow says that RTol and ATol do not hold (cost.Workload), and asks for outputSeen.L2.
	Narrow bool `json:"narrow,omitempty"`
	// Again says that the function was measured before and needs no check.
	Again bool `json:"again,omitempty"`

	// label is cost.Request.Label, for the recording.
	label string
}

// buildMessage asks for the code of many functions in one library, for plain TVM. The items are what "measure" would
// ask for; ids and the like in them mean nothing.
type buildMessage struct {
	ID     int              `json:"id"`
	Op     string           `json:"op"` // "build"
	Items  []measureMessage `json:"items"`
	Folder string           `json:"folder"`
	Name   string           `json:"name"`
}

// buildResult is the reply "result" to a buildMessage.
type buildResult struct {
	Manifest string `json:"manifest"`
}

// loadMessage tells a worker of what another one has built.
type loadMessage struct {
	ID       int    `json:"id"`
	Op       string `json:"op"` // "load"
	Manifest string `json:"manifest"`
}

// calibrateMessage asks how fast the machine is at best. Sizes are those of working sets in bytes, all threads
// together. With Ready it only makes ready, while others are at work; then it is asked again.
type calibrateMessage struct {
	ID      int    `json:"id"`
	Op      string `json:"op"` // "calibrate"
	Ready   bool   `json:"ready,omitempty"`
	Threads int    `json:"threads"`
	Sizes   []int  `json:"sizes"`
}

// calibrateResult is the reply "result" to a calibrateMessage: milliseconds for 10^9 float32 operations, and for
// reading 2^30 bytes of a working set of each size.
type calibrateResult struct {
	Flops []float64   `json:"gflop_ms"`
	Reads [][]float64 `json:"read_gib_ms"`
}

// compareMessage asks for the latencies of exported models, run in turn on the same inputs.
type compareMessage struct {
	ID      int     `json:"id"`
	Op      string  `json:"op"` // "compare"
	Models  []Model `json:"models"`
	Rounds  int     `json:"rounds"`
	Threads int     `json:"threads"`
	Seed    int     `json:"seed"`
	RTol    float64 `json:"rtol"`
	ATol    float64 `json:"atol_of_greatest"`
	// ATolOfEach is relative to the greatest expected element of the output itself.
	ATolOfEach float64 `json:"atol_of_each"`
	HeldOut    []Input `json:"held_out,omitempty"`
	// Measure is another one in which errors are taken on HeldOut.
	Measure *OwnMeasure `json:"measure,omitempty"`
}

// reply is any message from a worker; which fields it has depends on Event.
type reply struct {
	ID    int    `json:"id"`
	Event string `json:"event"` // "hello", "built", "progress", "result" or "error"

	// hello
	TVM string `json:"tvm"`

	// built
	Seconds float64 `json:"seconds"`

	// progress
	Round int `json:"round"`

	// error; the phases "setup" and "protocol" say that the worker cannot measure at all, the others are the
	// candidate's
	Phase  string `json:"phase"`
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
}

// measureResult is the reply "result" to a measureMessage.
type measureResult struct {
	Samples []float64 `json:"samples_ms"`
	// Outputs is nil where nothing was compared.
	Outputs *outputsSeen `json:"outputs"`
	// Grown is by how much the worker grew while this candidate was timed, since it was soaked.
	Grown int64 `json:"grown_bytes"`
}

// compareResult is the reply "result" to a compareMessage.
type compareResult struct {
	Samples map[string][]float64    `json:"samples_ms"`
	Outputs map[string]*outputsSeen `json:"outputs"`
	Errors  map[string]*cost.Errors `json:"errors"`
	Points  []cost.Point            `json:"points"`
}
