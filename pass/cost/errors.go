// SPDX-License-Identifier: Apache-2.0

package cost

import (
	"fmt"
	"math"
	"path/filepath"
	"strings"
)

// Errors say how far the outputs of a network that computes in a narrower type than its own are off plain TVM's, the
// worst output in each measure (python/collage/precision.py).
type Errors struct {
	// L2 is the length of the difference over that of what is right, Max the greatest difference over the greatest
	// value, Cosine one less the cosine of the angle between the two, Top1 the share of rows whose greatest element is
	// another one.
	L2     float64 `json:"l2"`
	Max    float64 `json:"max"`
	Cosine float64 `json:"cosine"`
	Top1   float64 `json:"top1"`
	// Own is the error in a measure of the user's own; nil where there is none.
	Own *OwnError `json:"own,omitempty"`
}

// OwnError is an error that a Python function of the user's gave.
type OwnError struct {
	// Measure is the function's name, as of Limit.
	Measure string  `json:"measure"`
	Error   float64 `json:"error"`
}

// The measures of errors.
const (
	L2     = "l2"
	Max    = "max"
	Cosine = "cosine"
	Top1   = "top1"
)

// Measures are the names of the measures of errors.
func Measures() []string { return []string{L2, Max, Cosine, Top1} }

// OwnMeasure splits the name of a measure of the user's own, FILE.py:FUNCTION; own is false for any other name.
func OwnMeasure(measure string) (file, function string, own bool) {
	file, function, own = strings.Cut(measure, ownMark)
	if !own {
		return "", "", false
	}
	return file + ".py", function, true
}

const ownMark = ".py:"

// MeasureText is what reports call a measure: of the user's own without the folder.
func MeasureText(measure string) string {
	if file, function, own := OwnMeasure(measure); own {
		return filepath.Base(file) + ":" + function
	}
	return measure
}

// In is the error in a measure: one of Measures, or that of Own; without bounds in one that was not taken.
func (e Errors) In(measure string) float64 {
	switch measure {
	case L2:
		return e.L2
	case Max:
		return e.Max
	case Cosine:
		return e.Cosine
	case Top1:
		return e.Top1
	}
	if e.Own != nil && e.Own.Measure == measure {
		return e.Own.Error
	}
	return math.Inf(1)
}

// Limit is how far a network's outputs may be off. The zero Limit is none.
type Limit struct {
	// Most is the greatest error that is allowed, in Measure: one of Measures, or one of the user's own (OwnMeasure), the
	// file an absolute path.
	Most    float64
	Measure string
}

// Exceeded says by how much a network's outputs are further off than they may be; "" where they are not.
func (l Limit) Exceeded(e *Errors) string {
	if e == nil || l.Measure == "" || e.In(l.Measure) <= l.Most {
		return ""
	}
	return fmt.Sprintf("its outputs are off by %.2g (%s) where %.2g is allowed", e.In(l.Measure), MeasureText(l.Measure),
		l.Most)
}
