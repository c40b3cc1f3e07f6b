// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

// maxDetail is how many bytes of a failure's text are kept: a compiler's message can be a page.
const maxDetail = 2000

// errorCost is the cost of a candidate that the worker reports as failed.
func errorCost(r reply, phase string, fail func(phase, kind, detail string) cost.Cost) cost.Cost {
	if r.Phase == "" {
		r.Phase = phase
	}
	if r.Kind == "" {
		r.Kind = cost.KindError
	}
	if len(r.Detail) > maxDetail {
		// The end of a traceback says what happened.
		r.Detail = "..." + r.Detail[len(r.Detail)-maxDetail:]
	}
	return fail(r.Phase, r.Kind, r.Detail)
}

// resultCost is the cost that a worker's result says; samples says whether it must have any. An error means that the
// line is no result. grown is measureResult.Grown.
func resultCost(line []byte, samples, narrow bool, taken time.Time) (c cost.Cost, grown int64, err error) {
	var result measureResult
	if err := json.Unmarshal(line, &result); err != nil {
		return cost.Cost{}, 0, fmt.Errorf("the worker's result is not readable: %w: %s", err, excerpt(line))
	}
	if failure := result.Outputs.verdict(narrow); failure != nil {
		return cost.FromFailure(*failure, taken), 0, nil
	}
	if len(result.Samples) == 0 && samples {
		return cost.Cost{}, 0, fmt.Errorf("the worker's result has no samples: %s", excerpt(line))
	}
	for _, s := range result.Samples {
		if !(s > 0) || math.IsInf(s, 0) {
			return cost.Cost{}, 0, fmt.Errorf("the worker's result has a sample of %v ms", s)
		}
	}
	return cost.Cost{Samples: result.Samples, Origin: cost.Measured, MaxError: result.Outputs.greatest(), Taken: taken},
		result.Grown, nil
}
