// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
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
	Channels []int `json:"channels"`
	// Inputs are looked at in this order, the first Least ones in any case, the others as long as InputSeconds last.
	Inputs       []Input `json:"inputs"`
	Least        int     `json:"least"`
	InputSeconds float64 `json:"input_seconds"`
	NoiseSeconds float64 `json:"noise_seconds"`
}

// Watched is what was seen of a network's values.
type Watched struct {
	// Values are the outputs behind the results, Inputs is on how many inputs they were seen.
	Values []rounding.Seen `json:"seen"`
	Inputs int             `json:"inputs"`
}

const (
	// inputTime is how long inputs are looked at beyond those of the search, twice: for the ends of what values reach, and
	// for what lies between.
	inputTime = 2 * time.Second
	// noiseTime is how long noise is tried at most. Where that is too short for all values, those between have what their
	// neighbours have.
	noiseTime = 3 * time.Second
)

// Watch runs an executable on inputs.Searched, and on as many of inputs.Scales as there is time for, and says what was
// seen of each of its outputs behind the first results ones, whose channels lie along these axes; its inputs beside the
// network's are noise that is added to these (annotate.Function.Watched). The failure says why nothing was. Errors: as
// Build's.
func (n *Networks) Watch(ctx context.Context, model string, results int, channels []int, inputs *Inputs) (seen Watched,
	failure *cost.Failure, err error) {
	if model, err = filepath.Abs(model); err != nil {
		return seen, nil, fmt.Errorf("measure: running a network: %w", err)
	}
	err = n.waiting(ctx, func(ctx context.Context) (err error) {
		failure, err = n.ask(ctx, &n.lane, n.options.NetworkTimeout, "run", &seen, func(id int) any {
			return networkWatchMessage{ID: id, Op: "network_watch", Model: model, Results: results, Channels: channels,
				Inputs: slices.Concat(inputs.Searched, spread(inputs.Scales)), Least: len(inputs.Searched),
				InputSeconds: n.hurried(inputTime), NoiseSeconds: n.hurried(noiseTime)}
		})
		return err
	})
	return seen, failure, err
}

// hurried is a time in seconds, shortened by Options.Hurry.
func (n *Networks) hurried(d time.Duration) float64 { return n.options.Hurry * d.Seconds() }

// spread orders a list so that, wherever it is cut off, what is left comes from everywhere in it: by the fractions of
// the multiples of the golden ratio, which lie evenly.
func spread[T any](list []T) []T {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	fraction := func(i int) float64 {
		x := float64(i) * 0.6180339887498949
		return x - float64(int(x))
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(fraction(a), fraction(b)) })
	ordered := make([]T, len(list))
	for at, i := range order {
		ordered[at] = list[i]
	}
	return ordered
}
