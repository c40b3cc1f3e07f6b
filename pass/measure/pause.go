// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/collage-tvm/collage/internal/tracefile"
)

// pauses are the times for which a worker was stopped.
type pauses struct {
	mu    sync.Mutex
	since time.Time // zero while it runs
	sum   time.Duration
	// stops is where the recording has them, and stop the one that goes on.
	stops *tracefile.Track
	stop  *tracefile.Span
}

// total is for how long it has been stopped so far.
func (p *pauses) total() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return p.sum
	}
	return p.sum + time.Since(p.since)
}

// stopWithin is how long pause waits for the kernel to stop a worker.
const stopWithin = 50 * time.Millisecond

// pause stops the worker and all that it has started, so that somebody else has the processors for himself. It returns
// when the worker has stopped.
func (p *process) pause() {
	p.mu.Lock()
	if !p.since.IsZero() {
		p.mu.Unlock()
		return
	}
	p.since = time.Now()
	p.stop = p.stops.Begin("stopped while something is timed", nil)
	p.mu.Unlock()
	if !p.signal(syscall.SIGSTOP) {
		return
	}
	for deadline := time.Now().Add(stopWithin); time.Now().Before(deadline) && !p.stopped(); {
		time.Sleep(200 * time.Microsecond)
	}
}

// resume lets a worker go on that was paused.
func (p *process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		return
	}
	p.sum += time.Since(p.since)
	p.since = time.Time{}
	p.stop.End(nil)
	p.signal(syscall.SIGCONT)
}

// signal reaches the whole group; false where the worker is gone, whose number may be another's by now.
func (p *process) signal(s syscall.Signal) bool {
	select {
	case <-p.exited:
		return false
	default:
		return syscall.Kill(-p.command.Process.Pid, s) == nil
	}
}

// stopped says that the worker is stopped, or is not there.
func (p *process) stopped() bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return true
	}
	at := bytes.LastIndexByte(stat, ')') // the name may hold anything
	return at < 0 || at+2 >= len(stat) || bytes.IndexByte([]byte("TtZX"), stat[at+2]) >= 0
}
