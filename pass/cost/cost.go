// SPDX-License-Identifier: Apache-2.0

// Package cost keeps what is known about how long candidates take.
//
// What comes in: samples measured by workers, failures with their reasons. What goes out: a Cost for each key,
// and the Store, an append-only JSON-lines file that several processes may write at once.
package cost

import (
	"fmt"
	"math"
	"time"

	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/internal/statistics"
)

// Origin says where a cost comes from.
type Origin string

const (
	// Measured in this run.
	Measured Origin = "measured"
	// Stored: measured earlier and found in the store.
	Stored Origin = "stored"
	// Given by a caller's estimator, or by rule (a tuple costs nothing).
	Given Origin = "given"
	// ByBackend: the backend's own estimate (byoc.CostFunction); nothing was measured.
	ByBackend Origin = "backend"
	// Bounded: not measured. The one sample is a true lower bound that left the candidate no chance.
	Bounded Origin = "bounded"
	// Context: what the candidate took in its place in a whole network, layout transforms and copies at its border
	// included.
	Context Origin = "context"
)

// Cost is what is known about the latency of one candidate on one backend. It keeps its samples; the number
// that the solver takes is Estimate. The zero Cost is an unknown one.
type Cost struct {
	// Samples are latencies of one call in milliseconds, in the order in which they were taken.
	Samples []float64 `json:"samples_ms,omitempty"`
	Origin  Origin    `json:"origin"`
	// Failure is set when the candidate must not be placed.
	Failure *Failure `json:"failure,omitempty"`
	// MaxError is the greatest absolute difference from TVM's result on the same inputs; 0 for TVM itself.
	MaxError float64 `json:"max_error,omitempty"`
	// Taken is when the samples were taken.
	Taken time.Time `json:"taken,omitzero"`
	// Computation says for people what was measured ("nn.conv2d nn.relu (1, 64, 56, 56) float32"). Nothing depends on
	// it.
	Computation string `json:"computation,omitempty"`
	// Network is what else is known of a whole network (NetworkKind); nil for a candidate.
	Network *Network `json:"network,omitempty"`
	// Scales is what was seen of values of a network's (ScalesKind), whose one sample is how long that took; nil for all
	// else.
	Scales *Scales `json:"scales,omitempty"`
}

// Scales is what was seen of values of a network's.
type Scales struct {
	// Inputs is on how many inputs they were seen.
	Inputs int     `json:"inputs"`
	Values []Scale `json:"values"`
	// Method is how the scales were made of what was seen. Tried are those that were compared for it, on Compared inputs;
	// none where the user named one.
	Method   string        `json:"method,omitempty"`
	Tried    []ScaleMethod `json:"tried,omitempty"`
	Compared int           `json:"compared_inputs,omitempty"`
	// Biases is what came of taking off biases what rounded weights are off by; nil where that was not tried.
	Biases *Biases `json:"biases,omitempty"`
}

// Biases is what came of taking off biases what rounded weights are off by in the mean.
type Biases struct {
	// Corrected says that it is done.
	Corrected bool `json:"corrected"`
	// Without and With are how far the outputs of a network were off without it and with it, in the measure of the budget;
	// nil where the user has decided.
	Without *float64 `json:"error_without,omitempty"`
	With    *float64 `json:"error_with,omitempty"`
}

// ScaleMethod is a method of making scales, and how far off the network's outputs were, in the measure of the budget,
// where all of its values that may be rounded were rounded by it, and nothing else.
type ScaleMethod struct {
	Method string  `json:"method"`
	Error  float64 `json:"error"`
}

// Scale is what was seen of a value of main's.
type Scale struct {
	// Value is its node.
	Value int32 `json:"value"`
	rounding.Learnt
}

// Network is what was found about a whole network beside its latency.
type Network struct {
	// Against are latencies of another executable in milliseconds, each from the same round as the sample of the same
	// place: on a busy machine only the two together say something.
	Against []float64 `json:"against_ms,omitempty"`
	// Pace is what that executable takes of plain TVM's time; 0 for plain TVM's own.
	Pace float64 `json:"pace,omitempty"`
	// Parts say what each part of the network took in place. Rest is the time of kernels that belong to no part.
	Parts []NetworkPart `json:"parts,omitempty"`
	Rest  float64       `json:"rest_ms,omitempty"`
	// Borders are what crossing the borders of regions took, by backend.
	Borders []NetworkBorder `json:"borders,omitempty"`
	// Whole are the regions that are one part although their engine times its steps, and why.
	Whole []NetworkWhole `json:"whole,omitempty"`
	// Bytes is the executable's size, Resident what loading and running it took of memory.
	Bytes    int64 `json:"bytes,omitempty"`
	Resident int64 `json:"resident_bytes,omitempty"`
	// Errors say how far its outputs are off on the inputs by which a search decides, HeldOut on those that it has not
	// seen; nil where that was not asked for: then they were compared with plain TVM's as those of any candidate are.
	Errors  *Errors `json:"errors,omitempty"`
	HeldOut *Errors `json:"held_out_errors,omitempty"`
	// Seconds is how long building and measuring took, which a search with a limit of time counts.
	Seconds float64 `json:"seconds,omitempty"`
}

// NetworkPart is a group of nodes of main that ran as one.
type NetworkPart struct {
	Nodes        []int32 `json:"nodes"`
	Milliseconds float64 `json:"ms"`
	Border       float64 `json:"border_ms,omitempty"`
	// Crossing is what of Border is due to another backend on the other side.
	Crossing float64 `json:"crossing_ms,omitempty"`
}

// NetworkBorder is what the borders of one backend's regions took, "" for what stays inline (feedback.Border has the
// same fields).
type NetworkBorder struct {
	Backend          string  `json:"backend"`
	Calls            int     `json:"calls,omitempty"`
	CallMilliseconds float64 `json:"call_ms,omitempty"`
	Ins              int     `json:"ins,omitempty"`
	InBytes          int64   `json:"in_bytes,omitempty"`
	In               float64 `json:"in_ms,omitempty"`
	Outs             int     `json:"outs,omitempty"`
	OutBytes         int64   `json:"out_bytes,omitempty"`
	Out              float64 `json:"out_ms,omitempty"`
}

// NetworkWhole is a region that could not be taken apart (feedback.Whole has the same fields); without a symbol
// it is the network, whose kernels could not be told apart.
type NetworkWhole struct {
	Backend string `json:"backend"`
	Symbol  string `json:"symbol"`
	Why     string `json:"why"`
}

// Failure says why a candidate cannot be used.
type Failure struct {
	// Phase is "build", "load", "run" or "check", or PhaseSetup.
	Phase string `json:"phase"`
	// Kind is "error", "crash", "timeout", "out-of-memory", "wrong-result", "not-a-number" or
	// "leak".
	Kind   string `json:"kind"`
	Detail string `json:"detail"`
	// Unkept says that it is nothing to be stored: the machine was busy, or memory was short, with something that what
	// has failed only needs; or PhaseSetup.
	Unkept bool `json:"-"`
}

// PhaseSetup is that of a network one of whose backends a worker could not make ready: its library or its device has gone
// since the search began. That says nothing of the network.
const PhaseSetup = "setup"

// The kinds of failures. They are part of the store's format.
const (
	KindError       = "error"
	KindCrash       = "crash"
	KindTimeout     = "timeout"
	KindOutOfMemory = "out-of-memory"
	KindWrongResult = "wrong-result"
	KindNotANumber  = "not-a-number"
	KindLeak        = "leak"
	// KindOverBudget is that of a network whose outputs are further off than they may be (Limit). It is no failure of the
	// network's, and not stored.
	KindOverBudget = "over-budget"
	// KindBadMeasure says that a measure of the user's own (OwnMeasure) gave no error: no failure of the network, and
	// nothing that is kept.
	KindBadMeasure = "bad-measure"
)

// String is the failure in one line: "timeout in run: no answer within 60s".
func (f *Failure) String() string {
	if f.Detail == "" {
		return fmt.Sprintf("%s in %s", f.Kind, f.Phase)
	}
	return fmt.Sprintf("%s in %s: %s", f.Kind, f.Phase, f.Detail)
}

// Passing says that it may have been the machine's fault: another try may go well.
func (f *Failure) Passing() bool {
	return f.Kind == KindTimeout || f.Kind == KindOutOfMemory || f.Kind == KindCrash || f.Phase == PhaseSetup
}

// Lifetime is how long a failure is believed. What may have been the machine's fault (it was busy, memory was
// short, an installation was broken) is tried again after a week; a wrong result after three months. A new version of
// the library is another key, so its candidates are tried at once.
func (f *Failure) Lifetime() time.Duration {
	switch f.Kind {
	case KindWrongResult, KindNotANumber, KindLeak:
		return 90 * 24 * time.Hour
	default:
		return 7 * 24 * time.Hour
	}
}

// Quantile is the quantile of the samples that Estimate takes. Noise on a shared machine only adds time, so the
// lower quartile says more about the code than the mean does, and it does not fall with every further sample as
// the minimum does.
const Quantile = 0.25

// contextQuantile is that of samples with Origin Context: a profile is brought to one speed, so what disturbs one
// part makes the others look quicker, and neighbours differ from network to network. Such samples are off to both
// sides.
const contextQuantile = 0.5

// quantile is the one that Estimate takes.
func (c Cost) quantile() float64 {
	if c.Origin == Context {
		return contextQuantile
	}
	return Quantile
}

// confidence is the coverage of Interval.
const confidence = 0.90

// FromMilliseconds is a cost that is given, not measured.
func FromMilliseconds(ms float64) Cost {
	return Cost{Samples: []float64{ms}, Origin: Given}
}

// FromBound is the cost of a candidate that was not measured: at least so many milliseconds.
func FromBound(ms float64) Cost {
	return Cost{Samples: []float64{ms}, Origin: Bounded}
}

// FromFailure is the cost of a candidate that failed when it was measured at the given time.
func FromFailure(f Failure, taken time.Time) Cost {
	return Cost{Failure: &f, Origin: Measured, Taken: taken}
}

// Failed says that the candidate must not be placed.
func (c Cost) Failed() bool { return c.Failure != nil }

// Known says that there is a number: samples and no failure.
func (c Cost) Known() bool { return c.Failure == nil && len(c.Samples) > 0 }

// Exact says that the number stands for itself: further samples would say nothing.
func (c Cost) Exact() bool { return c.Origin == Given || c.Origin == ByBackend }

// Estimate is the latency in milliseconds that the solver takes: the lower quartile of the samples (linear between
// order statistics), of those from whole networks (Context) the median. It is +Inf for a failed cost and for one
// without samples.
func (c Cost) Estimate() float64 {
	if !c.Known() {
		return math.Inf(1)
	}
	return statistics.Quantile(c.Samples, c.quantile())
}

// Interval is a 90 % confidence interval for the quantile that Estimate takes, in milliseconds. It assumes nothing
// about the distribution: its ends are order statistics, chosen by the binomial distribution of how many of n
// samples fall under the quantile. Where n is too small for an end, the end is the smallest or the greatest sample.
// Both ends are +Inf for a failed cost and for one without samples.
func (c Cost) Interval() (low, high float64) {
	if !c.Known() {
		return math.Inf(1), math.Inf(1)
	}
	return statistics.QuantileInterval(c.Samples, c.quantile(), confidence)
}

// Validate says what is wrong with a cost that is to be stored; nil where nothing is.
func (c Cost) Validate() error {
	if c.Failure != nil {
		if c.Failure.Phase == "" || c.Failure.Kind == "" {
			return fmt.Errorf("cost: a failure needs a phase and a kind, this one has %q and %q", c.Failure.Phase,
				c.Failure.Kind)
		}
		return nil
	}
	if len(c.Samples) == 0 {
		return fmt.Errorf("cost: neither samples nor a failure")
	}
	for i, s := range c.Samples {
		if math.IsNaN(s) || math.IsInf(s, 0) || s < 0 {
			return fmt.Errorf("cost: sample %d is %v ms: latencies are finite and not negative", i, s)
		}
	}
	if c.Scales != nil {
		for i := range c.Scales.Values {
			if err := c.Scales.Values[i].Validate(); err != nil {
				return fmt.Errorf("cost: value %d: %w", c.Scales.Values[i].Value, err)
			}
		}
	}
	if math.IsNaN(c.MaxError) || math.IsInf(c.MaxError, 0) {
		return fmt.Errorf("cost: the greatest difference from TVM's result is %v", c.MaxError)
	}
	return nil
}
