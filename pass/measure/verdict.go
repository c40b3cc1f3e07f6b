// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/collage-tvm/collage/pass/cost"
)

// How far outputs may be from TVM's where nobody says more: relative to the expected element, and as a share of the
// greatest expected one (check.tolerances, Python).
const (
	// candidateRTol is for a candidate by itself: another algorithm for one operator (Winograd's), or another order of
	// its sums, is the same computation; bound.Tolerance says more of sums that it knows to be long.
	candidateRTol = 1e-3
	// networkRTol is for whole networks, whose outputs are what users hold against another engine's: candidates that
	// are off by candidateRTol on random numbers are hardly so together.
	networkRTol = 1e-4
	// shareOfGreatest is some hundred times float32's own rounding (2^-24): what is small beside the greatest value
	// came of sums that cancel, and has no digits of its own below that.
	shareOfGreatest = 1e-5
	// oneRounding is how far apart two numbers of float32 are at most that follow each other, relatively.
	oneRounding = 0x1p-23
)

// somethingElse is the relative error (L2) from which on a part that is computed narrowly computes something else than
// TVM, and not the same less exactly: more than the greatest budget that makes sense (settings.QuantisedMaxError),
// less than what a wrong sign or axis gives, which is off by 1 and more.
const somethingElse = 0.25

// outputsSeen is what a worker says of outputs beside the expected ones (check.seen, Python). What comes of it is said
// here.
type outputsSeen struct {
	// Unlike says which output has another shape or type than is expected; then there is nothing in Each.
	Unlike string       `json:"unlike"`
	Each   []outputSeen `json:"each"`
}

// outputSeen is one of them.
type outputSeen struct {
	// Elements is how many there are, Wrong how many of them are off by more than was asked for.
	Elements int `json:"elements"`
	Wrong    int `json:"wrong"`
	// Greatest is the greatest absolute error, nil where it has no bounds; of the wrong elements it is the one at At,
	// where Got stands instead of Expected.
	Greatest *float64 `json:"greatest"`
	At       []int    `json:"at"`
	Got      string   `json:"got"`
	Expected string   `json:"expected"`
	// NewNaN says that it holds NaN where there are numbers alone.
	NewNaN bool `json:"new_nan"`
	// L2 is the length of the difference over that of what is expected, of what is computed narrowly.
	L2 float64 `json:"l2"`
}

// mismatch says which output is not the expected one, and where it differs most; "" for none.
func (s *outputsSeen) mismatch() string {
	if s.Unlike != "" {
		return s.Unlike
	}
	for i := range s.Each {
		if o := &s.Each[i]; o.Wrong > 0 {
			at := make([]string, len(o.At))
			for k, x := range o.At {
				at[k] = strconv.Itoa(x)
			}
			return fmt.Sprintf("output %d differs in %d of %d elements, most at [%s]: %s instead of %s", i, o.Wrong,
				o.Elements, strings.Join(at, ", "), o.Got, o.Expected)
		}
	}
	return ""
}

// narrowMismatch is mismatch of what is computed in a narrower type than TVM's result.
func (s *outputsSeen) narrowMismatch() string {
	for i := range s.Each {
		if l2 := s.Each[i].L2; !(l2 <= somethingElse) {
			return fmt.Sprintf("output %d is off by %.2g (L2, relative): that is no rounding to a narrower type", i, l2)
		}
	}
	return s.Unlike
}

// verdict is what is wrong with a candidate's outputs; nil where nothing is, or nothing was compared.
func (s *outputsSeen) verdict(narrow bool) *cost.Failure {
	if s == nil {
		return nil
	}
	mismatch := s.mismatch
	if narrow {
		mismatch = s.narrowMismatch
	}
	return s.failure("the result holds NaN where plain TVM's holds numbers", mismatch())
}

// networkVerdict is what is wrong with a network's outputs. Of one that is computed narrowly its errors say more
// (NetworkRun.Inputs).
func (s *outputsSeen) networkVerdict(narrow bool) *cost.Failure {
	if s == nil {
		return nil
	}
	mismatch := s.mismatch()
	if narrow {
		mismatch = s.Unlike
	}
	return s.failure("the outputs hold NaN where TVM's hold numbers", mismatch)
}

func (s *outputsSeen) failure(nan, mismatch string) *cost.Failure {
	for i := range s.Each {
		if s.Each[i].NewNaN {
			return &cost.Failure{Phase: "check", Kind: cost.KindNotANumber, Detail: nan}
		}
	}
	if mismatch == "" {
		return nil
	}
	return &cost.Failure{Phase: "check", Kind: cost.KindWrongResult, Detail: mismatch}
}

// greatest is the greatest absolute error; 0 where nothing was compared, or it has no bounds.
func (s *outputsSeen) greatest() (most float64) {
	if s == nil {
		return 0
	}
	for i := range s.Each {
		if e := s.Each[i].Greatest; e != nil {
			most = max(most, *e)
		}
	}
	return most
}

// Doubtful says that a network's outputs may be further from plain TVM's than shareOfGreatest, since these are off
// another engine's by doubt.
func Doubtful(doubt float64) bool { return 2*doubt > shareOfGreatest }

// shareOfAll is how far each of a network's outputs may be from plain TVM's whatever its own values are, as a share of
// the greatest of all outputs. Where TVM's are off another engine's by doubt it is as far again as that is for whoever is
// nearer to what is right: TVM adds up one after the other, and a mean over a large image is off by more than what other
// engines make of it. Otherwise it is one rounding of that value: an output may be what is left of a difference.
func shareOfAll(doubt float64) float64 {
	if Doubtful(doubt) {
		return 2 * doubt
	}
	return oneRounding
}

// tolerances are those that were asked for, or candidateRTol and shareOfGreatest.
func tolerances(rtol, atol float64) (relative, ofGreatest float64) {
	if relative, ofGreatest = rtol, atol; rtol == 0 {
		relative = candidateRTol
	}
	if atol == 0 {
		ofGreatest = shareOfGreatest
	}
	return relative, ofGreatest
}
