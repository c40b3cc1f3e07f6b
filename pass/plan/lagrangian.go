// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
)

// Lagrangian is a placement by time and a price for errors, by what was believed when it was made, without what is paid
// between regions: it is the fastest of all that are off by no more than it is.
type Lagrangian struct {
	// Price is what is paid for a unit of the error's square (of the error itself where the measure adds up), in
	// milliseconds; 0 where the fastest is allowed.
	Price float64 `json:"lambda_ms"`
	// Milliseconds is what the placement takes, Error what it is off by. Allowed is what it was to be: somewhat less than
	// MaxError. A greater Error says that nothing was found that is believed to be allowed.
	Milliseconds float64 `json:"total_ms"`
	Error        float64 `json:"error"`
	Allowed      float64 `json:"allowed_error"`
	// Bound is what no placement takes less than that is off by no more than Allowed; Gap is Milliseconds less Bound. More
	// than 0 it is where what is allowed lies between two corners of the frontier of time against error, and no
	// price leads to what may lie between them.
	Bound float64 `json:"bound_ms"`
	Gap   float64 `json:"gap_ms"`
}

// text says it in a clause.
func (l *Lagrangian) text() string {
	switch {
	case l == nil:
		return ""
	case l.Error > l.Allowed:
		return fmt.Sprintf("nothing within %.3g, at best %.3g", l.Allowed, l.Error)
	}
	return fmt.Sprintf("%.4g ms a unit, within %.3g ms of the fastest", l.Price, l.Gap)
}

// validate says what does not add up.
func (l *Lagrangian) validate() error {
	if l == nil {
		return nil
	}
	for _, v := range []float64{l.Price, l.Milliseconds, l.Error, l.Allowed, l.Gap} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return fmt.Errorf("plan: the price of errors has the number %v", v)
		}
	}
	if !(math.Abs(l.Milliseconds-l.Bound-l.Gap) <= 1e-6*max(1, l.Milliseconds)) {
		return fmt.Errorf("plan: the price of errors leads to %v ms, which is not %v ms more than %v", l.Milliseconds, l.Gap,
			l.Bound)
	}
	return nil
}
