// SPDX-License-Identifier: Apache-2.0

package pass

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/pass/cost"
)

// givenCosts is an estimator that asks a packed function: it takes a cost.Key as JSON and gives milliseconds. Infinity
// says that the candidate cannot be used.
type givenCosts struct{ function *bridge.Function }

var _ cost.Estimator = givenCosts{}

// Estimate implements cost.Estimator.
func (e givenCosts) Estimate(_ context.Context, requests []cost.Request) ([]cost.Cost, error) {
	costs := make([]cost.Cost, len(requests))
	for i := range requests {
		key, err := json.Marshal(requests[i].Key)
		if err != nil {
			return costs, err
		}
		v, err := e.function.Invoke(string(key))
		if err != nil {
			return costs, err
		}
		ms, err := v.Float()
		if err != nil {
			return costs, fmt.Errorf("TypeError: the cost of %s: %w", requests[i].Label, err)
		}
		switch {
		case math.IsInf(ms, 1):
			costs[i] = cost.FromFailure(cost.Failure{Phase: "check", Kind: cost.KindError,
				Detail: "ruled out by who gives the costs"},
				time.Time{})
			costs[i].Origin = cost.Given
		case ms >= 0: // not NaN either
			costs[i] = cost.FromMilliseconds(ms)
		default:
			return costs, fmt.Errorf("ValueError: the cost of %s is %v ms; it is a number from 0 on, or infinity",
				requests[i].Label, ms)
		}
	}
	return costs, nil
}

// estimatorOf gives the estimator that an argument of a packed function is; nil for one that is missing or None.
func estimatorOf(args []bridge.Value, i int) (cost.Estimator, error) {
	if i >= len(args) || args[i].IsNil() {
		return nil, nil
	}
	function, err := args[i].Function()
	if err != nil {
		return nil, fmt.Errorf("TypeError: %s: argument %d is not a function that gives costs: %w", PartitionFunction,
			i, err)
	}
	return givenCosts{function}, nil
}
