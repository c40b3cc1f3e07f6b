// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
)

type networkRoundMessage struct {
	ID      int    `json:"id"`
	Op      string `json:"op"` // "network_round"
	Model   string `json:"model"`
	Results int    `json:"results"`
	// Steps are those of each output behind the results, in each way that is tried.
	Steps [][]rounding.Steps `json:"steps"`
	// Inputs are run in this order, the first in any case, the others as long as Seconds last.
	Inputs  []Input     `json:"inputs"`
	Seconds float64     `json:"seconds"`
	Measure *OwnMeasure `json:"measure,omitempty"`
}

type networkRoundResult struct {
	Inputs int           `json:"inputs"`
	Errors []cost.Errors `json:"errors"`
}

// roundTime is how long inputs are run on which ways to round are compared.
const roundTime = 3 * time.Second

// Rounded says how far off an executable's first results outputs are where its further ones, to which its inputs beside
// the network's are added (annotate.Function.Watched), are rounded: for each list of as many steps, on as many of
// inputs.Compared as there is time for, the same for all. What they are off by is taken from the exact values: it is of
// the first order. The failure says why nothing is known. Errors: as Build's.
func (n *Networks) Rounded(ctx context.Context, model string, results int, steps [][]rounding.Steps, inputs *Inputs) (
	errors []cost.Errors, used int, failure *cost.Failure, err error) {
	if model, err = filepath.Abs(model); err != nil {
		return nil, 0, nil, fmt.Errorf("measure: running a network: %w", err)
	}
	var result networkRoundResult
	err = n.waiting(ctx, func(ctx context.Context) (err error) {
		failure, err = n.ask(ctx, &n.lane, n.options.NetworkTimeout, "run", &result, func(id int) any {
			return networkRoundMessage{ID: id, Op: "network_round", Model: model, Results: results, Steps: steps,
				Inputs: inputs.Compared, Seconds: n.hurried(roundTime), Measure: inputs.Measure}
		})
		return err
	})
	if err == nil && failure == nil && len(result.Errors) != len(steps) {
		failure = &cost.Failure{Phase: "run", Kind: cost.KindError,
			Detail: fmt.Sprintf("%d ways to round were compared of %d", len(result.Errors), len(steps))}
	}
	return result.Errors, result.Inputs, failure, err
}
