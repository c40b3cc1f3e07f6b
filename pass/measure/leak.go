// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

const (
	// leakBytes is what a worker may grow by while a candidate is timed, and in a block of runs: allocators take memory
	// from the system in steps of some tens of KiB. A region leaks whose every further block takes at least so much.
	leakBytes = 64 << 10
	// poolBytes may be a pool that fills up and stops: oneTBB's under OpenVINO was seen to take 10 MB in the first ten
	// thousand runs.
	poolBytes = 32 << 20
	// leakBlocks is how many blocks are run at most: what has not taken poolBytes by then is too little to do harm in a
	// search.
	leakBlocks = 16
	// leakBlock is how long a block of runs takes, about; mostSoaked is how many runs it has at most.
	leakBlock  = 100 * time.Millisecond
	mostSoaked = 100_000
	// firstBlock is which part of a block is run before all others.
	firstBlock = 5
	// leakPause: what still grows after it is a leak. On a busy machine oneTBB's notes to a worker that gets no processor
	// pile up (80 bytes a run, 32 MB in a second were seen); it clears them away when it comes to run.
	leakPause = 200 * time.Millisecond
)

// soaking runs something so many times after a pause and says by how many bytes the process is larger then; false
// where that came to nothing.
type soaking func(runs int, pause time.Duration) (grown int64, ok bool)

// leak is how many bytes each run leaves behind, as far as that is certain; 0 where it is not. A run takes runMs
// milliseconds.
func leak(runMs float64, soak soaking) int64 {
	runs := min(mostSoaked, max(1, int(math.Ceil(leakBlock.Seconds()*1e3/max(runMs, 1e-6)))))
	// At that pace a fifth of a block shows as well that there is none: most have only filled a cache.
	if grown, ok := soak((runs+firstBlock-1)/firstBlock, 0); !ok || grown < leakBytes/firstBlock {
		return 0
	}
	sum := int64(0)
	for block := int64(1); block <= leakBlocks; block++ {
		grown, ok := soak(runs, 0)
		if sum += grown; !ok || grown < leakBytes {
			return 0
		}
		if sum < poolBytes {
			continue
		}
		each := sum / block
		if grown, ok = soak(runs, leakPause); !ok || grown < max(leakBytes, each/2) {
			return 0
		}
		return max(1, each/int64(runs))
	}
	return 0
}

// soakMessage asks to run what was measured. The embedded message says what, with another Op.
type soakMessage struct {
	measureMessage         // "soak", or "forget", which lets go of it
	Runs           int     `json:"runs,omitempty"`
	Pause          float64 `json:"pause_s,omitempty"`
}

// soakResult is the reply "result" to "soak": the worker's memory.
type soakResult struct {
	Before int64 `json:"before_bytes"`
	After  int64 `json:"after_bytes"`
}

// leaks looks at whether a candidate leaves memory behind that was just timed. What comes back is a cost with a failure
// where it does, or where it cannot be run any more; else ok. alive and err are ask's.
func (p *Pool) leaks(ctx context.Context, worker *process, j *job, fastest float64) (c cost.Cost, ok, alive bool,
	err error) {
	taken := time.Now()
	alive = true
	send := func(m soakMessage, op string, into any) bool {
		m.measureMessage = p.options.message(j)
		m.Op = op
		var line []byte
		line, c, alive, err = p.exchange(ctx, worker, j, "run", p.options.RunTimeout, func(id int) any {
			m.ID = id
			return m
		})
		if line == nil {
			return false
		}
		if wrong := json.Unmarshal(line, into); wrong != nil {
			c, alive = cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindError,
				Detail: fmt.Sprintf("the worker's answer to %q is not readable: %v", op, wrong)}, taken), false
			return false
		}
		return true
	}
	failed := false
	lost := leak(fastest, func(runs int, pause time.Duration) (int64, bool) {
		var result soakResult
		failed = !send(soakMessage{Runs: runs, Pause: pause.Seconds()}, "soak", &result)
		return result.After - result.Before, !failed
	})
	if failed {
		return c, false, alive, err
	}
	if lost == 0 {
		return cost.Cost{}, true, true, nil
	}
	var nothing struct{}
	if !send(soakMessage{}, "forget", &nothing) && err != nil {
		return c, false, alive, err
	}
	return cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindLeak,
		Detail: fmt.Sprintf("each run leaves about %s behind that is not freed", sizeText(lost))}, taken), false, alive, nil
}

func sizeText(count int64) string {
	if count < 10_000 {
		return fmt.Sprintf("%d bytes", count)
	}
	return fmt.Sprintf("%d KiB", count>>10)
}
