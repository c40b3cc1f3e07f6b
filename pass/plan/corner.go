// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
)

// Corner is a corner of the lower hull of all placements' time against error, by what is believed of both: none that is
// off by no more is faster, and no mixture of two others is below it.
type Corner struct {
	// Milliseconds is what it takes without what is paid between regions, Error what it is off by.
	Milliseconds float64 `json:"total_ms"`
	Error        float64 `json:"error"`
	// Operators says how many of its operators are computed in each precision.
	Operators map[string]int `json:"operators"`
	// Price is that of a unit of the error's square (of the error itself where the measure adds up), in milliseconds, at
	// which the next corner is as cheap as this one; 0 for the last one.
	Price float64 `json:"lambda_ms"`
	// Gap is how much less a placement may take at most that is further off than this one and less than the next one:
	// there may be some, which no price leads to. 0 for the last one.
	Gap float64 `json:"gap_ms"`
	// Unproven is how far below the line to the next corner there may be placements; 0 where it is proven that there are
	// none.
	Unproven float64 `json:"unproven_ms,omitempty"`
}

// validate says what does not add up.
func (c *Corner) validate() error {
	for _, v := range []float64{c.Milliseconds, c.Error, c.Price, c.Gap, c.Unproven} {
		if !(v >= 0) || math.IsInf(v, 1) {
			return fmt.Errorf("plan: a corner of time against error has the number %v", v)
		}
	}
	return nil
}
