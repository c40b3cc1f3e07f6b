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

type networkWatchMessage struct {
	ID      int    `json:"id"`
	Op      string `json:"op"` // "network_watch"
	Model   string `json:"model"`
	Results int    `json:"results"`
	// Channels are the axes of channels, of each output behind the results.
	Channels []int   `json:"channels"`
	Seconds  float64 `json:"seconds"`
	Inputs   []Input `json:"inputs"`
}

type networkWatchResult struct {
	Seen []rounding.Seen `json:"seen"`
}

// watchTime is how long noise is tried at most. Where that is too short for all values, those between have what their
// neighbours have.
const watchTime = 3 * time.Second

// Watch runs an executable on these inputs and says what was seen of each of its outputs behind the first results ones,
// whose channels lie along these axes; its inputs beside the network's are noise that is added to these
// (annotate.Function.Watched). The failure says why nothing was. Errors: as Build's.
func (n *Networks) Watch(ctx context.Context, model string, results int, channels []int, inputs []Input) (seen []rounding.Seen,
	failure *cost.Failure, err error) {
	if model, err = filepath.Abs(model); err != nil {
		return nil, nil, fmt.Errorf("measure: running a network: %w", err)
	}
	err = n.waiting(ctx, func(ctx context.Context) (err error) {
		var result networkWatchResult
		failure, err = n.ask(ctx, &n.lane, n.options.NetworkTimeout, "run", &result, func(id int) any {
			return networkWatchMessage{ID: id, Op: "network_watch", Model: model, Results: results, Channels: channels,
				Seconds: watchTime.Seconds(), Inputs: inputs}
		})
		seen = result.Seen
		return err
	})
	return seen, failure, err
}
