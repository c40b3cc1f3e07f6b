// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

// pollInterval is how often Options.Poll is called.
const pollInterval = 20 * time.Millisecond

// Pool is a cost.Estimator that looks into the store and measures what is not there. Make it with NewPool and Close
// it. Its methods are called by one goroutine at a time.
type Pool struct {
	options Options
	dir     string   // the workers' temporary folder
	lock    *os.File // says that it is in use
	slots   []*process
	stats   Stats
	// absent are the backends that the workers cannot set up: their library has gone since it was probed.
	absent map[string]cost.Failure
	ahead  *ahead // nil where nobody builds ahead
}

var _ cost.Estimator = (*Pool)(nil)

// NewPool makes a pool. Workers are started when they are first needed.
func NewPool(options Options) (*Pool, error) {
	options = options.withDefaults()
	if options.Command[0] == "" {
		return nil, errors.New("measure: no Python interpreter for the workers is known; set COLLAGE_PYTHON or " +
			"Config.Python")
	}
	dir, lock, err := makeFolder(os.TempDir())
	if err != nil {
		return nil, fmt.Errorf("measure: making a folder for the workers: %w", err)
	}
	p := &Pool{options: options, dir: dir, lock: lock, absent: map[string]cost.Failure{}}
	if options.Builders > 0 {
		options.Workers = 1
		p.ahead = newAhead(&p.options, dir)
	}
	p.slots = make([]*process, options.Workers)
	return p, nil
}

// Stats are the counts since the pool was made.
func (p *Pool) Stats() Stats {
	stats := p.stats
	if p.ahead != nil {
		stats.Started += p.ahead.started
	}
	return stats
}

// Close ends the workers and removes what they left in their temporary folder. The store stays open: it is the
// caller's.
func (p *Pool) Close() error {
	if p.ahead != nil {
		p.ahead.close()
	}
	var group sync.WaitGroup
	for i, worker := range p.slots {
		if worker != nil {
			group.Go(worker.quit)
			p.slots[i] = nil
		}
	}
	group.Wait()
	defer p.lock.Close()
	return os.RemoveAll(p.dir)
}

// job is one key that must be measured.
type job struct {
	request  *cost.Request
	workload *cost.Workload
	samples  int
	again    bool // it was measured and checked before
	prepare  bool // it is only built, run and checked
	awake    bool // something else was timed right before it
}

// outcome is what a worker's goroutine found about a job.
type outcome struct {
	job  *job
	cost cost.Cost
	err  error // the search cannot go on
	// absent: the cost is a failure of the backend, not of this candidate.
	absent bool
	// started is how many worker processes the job took.
	started int
}

// Estimate implements cost.Estimator.
func (p *Pool) Estimate(ctx context.Context, requests []cost.Request) ([]cost.Cost, error) {
	known := map[cost.Key]cost.Cost{}
	var waiting []*job
	asked := map[cost.Key]bool{}
	for i := range requests {
		r := &requests[i]
		if asked[r.Key] {
			continue
		}
		asked[r.Key] = true
		if c, found := p.lookup(r.Key); found {
			known[r.Key] = c
			p.stats.FromStore++
			continue
		}
		waiting = append(waiting, &job{request: r, samples: p.options.Samples})
	}
	p.stats.Requested += len(asked)
	p.order(waiting)
	done, total := len(known), len(asked)
	for i := range requests {
		if c, ok := known[requests[i].Key]; ok && asked[requests[i].Key] {
			asked[requests[i].Key] = false // one event a key
			p.report(Event{Done: done, Total: total, Request: &requests[i], Cost: c})
		}
	}
	measure := p.measure
	if p.ahead != nil {
		measure = p.pipeline
	}
	err := measure(ctx, waiting, func(j *job, c cost.Cost, absent bool) error {
		done++
		p.stats.Measured++
		if c.Failed() {
			p.stats.Failed++
		}
		if absent {
			// Not in the store: the next run may find the library again.
			p.absent[j.request.Key.Backend] = *c.Failure
			known[j.request.Key] = c
			p.report(Event{Done: done, Total: total, Request: j.request, Cost: c})
			return nil
		}
		c.Computation = j.request.Computation
		// At once: whatever happens next, this is not measured again.
		err := p.options.Store.Put(j.request.Key, c)
		if kept, found := p.options.Store.Lookup(j.request.Key); found {
			c = kept // with the digits that the next run will read
		}
		known[j.request.Key] = c
		p.report(Event{Done: done, Total: total, Request: j.request, Cost: c})
		return err
	})
	costs := make([]cost.Cost, len(requests))
	for i := range requests {
		costs[i] = known[requests[i].Key]
	}
	return costs, err
}

// Known gives what is known about each request without measuring; zero Costs for the others.
func (p *Pool) Known(requests []cost.Request) []cost.Cost {
	costs := make([]cost.Cost, len(requests))
	for i := range requests {
		if c, found := p.lookup(requests[i].Key); found {
			costs[i] = c
			p.stats.Requested++
			p.stats.FromStore++
		}
	}
	return costs
}

func (p *Pool) lookup(key cost.Key) (cost.Cost, bool) {
	c, found := p.options.Store.Lookup(key)
	if found && c.Failed() && p.options.RetryFailures && c.Origin == cost.Stored {
		return cost.Cost{}, false
	}
	return c, found
}

// order puts jobs with one structure together, the reference backend's first, and keeps the order of the requests
// otherwise: a worker then has the reference outputs of a structure at hand when the other backends are checked.
func (p *Pool) order(jobs []*job) {
	first := map[string]int{}
	for i, j := range jobs {
		if _, ok := first[j.request.Key.Structure]; !ok {
			first[j.request.Key.Structure] = i
		}
	}
	slices.SortStableFunc(jobs, func(a, b *job) int {
		if d := first[a.request.Key.Structure] - first[b.request.Key.Structure]; d != 0 {
			return d
		}
		return p.rank(a) - p.rank(b)
	})
}

func (p *Pool) rank(j *job) int {
	if j.request.Key.Backend == p.options.Reference {
		return 0
	}
	return 1
}

func (p *Pool) report(e Event) {
	if p.options.Progress != nil {
		p.options.Progress(e)
	}
}

func (p *Pool) poll(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if p.options.Poll == nil {
		return nil
	}
	return p.options.Poll()
}

// measure runs the jobs on the workers, and calls take on this goroutine for each finished one.
func (p *Pool) measure(ctx context.Context, jobs []*job, take func(j *job, c cost.Cost, absent bool) error) error {
	d := dispatching[outcome]{workers: len(p.slots), jobs: len(jobs), poll: p.poll,
		prepare: func(i int) (done bool, err error) {
			j := jobs[i]
			if err := p.poll(ctx); err != nil {
				return false, err
			}
			if failure, ok := p.absent[j.request.Key.Backend]; ok {
				return true, take(j, cost.FromFailure(failure, time.Now()), true)
			}
			if j.workload, err = j.request.Build(); err != nil {
				return false, fmt.Errorf("measure: %s: %w", j.request.Label, err)
			}
			return false, nil
		},
		run: func(ctx context.Context, slot, i int) outcome { return p.run(ctx, slot, jobs[i]) },
		take: func(_ int, o outcome, _ bool) error {
			p.stats.Started += o.started
			if o.err != nil {
				return o.err
			}
			return take(o.job, o.cost, o.absent)
		}}
	return d.dispatch(ctx)
}

// worker is a slot's worker, which is started if there is none and replaced if it has grown too fat. started is how
// many were started.
func (p *Pool) worker(ctx context.Context, slot int) (worker *process, started int, err error) {
	worker = p.slots[slot]
	if worker != nil && worker.memory() > p.options.MaxMemory {
		worker.quit()
		worker = nil
	}
	if worker == nil {
		p.slots[slot] = nil
		if worker, err = launch(&p.options, p.dir, roleMeasuring); err != nil {
			return nil, 0, err
		}
		started++
	}
	if worker.lastID == 0 {
		if err := worker.greet(ctx, &p.options); err != nil {
			p.slots[slot] = nil
			return nil, started, err
		}
	}
	p.slots[slot] = worker
	return worker, started, nil
}

// Expect says that these requests are likely to be asked for, in this order, so that workers can be started and code
// can be built while nobody waits for it. Nothing is measured. Errors are those of a request's Build.
func (p *Pool) Expect(requests []cost.Request) error {
	if p.ahead == nil {
		return nil
	}
	var unknown []cost.Request
	for _, r := range requests {
		if _, found := p.lookup(r.Key); !found {
			unknown = append(unknown, r)
		}
	}
	if len(unknown) > 0 && p.slots[0] == nil {
		worker, err := launch(&p.options, p.dir, roleMeasuring)
		if err != nil {
			return err
		}
		p.stats.Started++
		p.slots[0] = worker
	}
	return p.ahead.expect(unknown)
}

// alone makes the builders stand still until the function that it gives is called.
func (p *Pool) alone() (done func()) {
	if p.ahead == nil {
		return func() {}
	}
	p.ahead.pause()
	return p.ahead.resume
}

// run measures one job on one slot's worker. A worker that crashes after it has served other requests may have
// been broken by them: a fresh one gets the job once more.
func (p *Pool) run(ctx context.Context, slot int, j *job) (o outcome) {
	o = outcome{job: j}
	defer func() {
		if r := recover(); r != nil {
			o.err = fmt.Errorf("measure: %s: %v", j.request.Label, r)
		}
	}()
	for {
		worker, started, err := p.worker(ctx, slot)
		o.started += started
		if err != nil {
			o.err = err
			return o
		}
		c, alive, err := p.ask(ctx, worker, j)
		var setup *setupError
		if errors.As(err, &setup) && j.workload.Compiler != "" {
			o.cost, o.absent = cost.FromFailure(cost.Failure{Phase: "load", Kind: cost.KindError, Detail: setup.detail},
				time.Now()), true
			return o
		}
		if !alive {
			p.slots[slot] = nil
			worker.kill()
		}
		if err != nil {
			o.err = err
			return o
		}
		if !alive && worker.served > 0 && c.Failure.Kind != cost.KindTimeout && c.Failure.Kind != cost.KindOutOfMemory {
			continue
		}
		worker.served++
		o.cost = c
		return o
	}
}

// ask sends one job to a worker and waits for the result. alive says whether the worker can be used again; a cost that
// comes with a worker that is not alive has a failure.
func (p *Pool) ask(ctx context.Context, worker *process, j *job) (c cost.Cost, alive bool, err error) {
	taken := time.Now()
	line, c, alive, err := p.exchange(ctx, worker, j, "build", p.options.BuildTimeout, func(id int) any {
		message := p.options.message(j)
		message.ID = id
		return message
	})
	if line == nil {
		return c, alive, err
	}
	c, grown, err := resultCost(line, !j.prepare, j.workload.Narrow, taken)
	if err != nil {
		return cost.FromFailure(cost.Failure{Phase: "run", Kind: cost.KindError, Detail: err.Error()}, taken), false, nil
	}
	// Caches and pools grow, too, but stop.
	if j.workload.Compiler == "" || grown < leakBytes || len(c.Samples) == 0 {
		return c, true, nil
	}
	if leaking, ok, alive, err := p.leaks(ctx, worker, j, slices.Min(c.Samples)); !ok {
		return leaking, alive, err
	}
	return c, true, nil
}

// exchange sends one message about a job to a worker and waits for the line of its result; nil where there is none, and
// then the cost says why. phase is what it does at first, within limit. alive and err are ask's.
func (p *Pool) exchange(ctx context.Context, worker *process, j *job, phase string, limit time.Duration,
	message func(id int) any) (line []byte, c cost.Cost, alive bool, err error) {
	worker.lastID++
	taken := time.Now()
	fail := func(phase, kind, detail string) cost.Cost {
		return cost.FromFailure(cost.Failure{Phase: phase, Kind: kind, Detail: detail}, taken)
	}
	if err := worker.send(message(worker.lastID)); err != nil {
		kind, detail := describeEnd(worker.exit())
		return nil, fail(phase, kind, detail), false, nil
	}
	for {
		r, line, err := worker.receive(ctx, limit)
		if err != nil {
			var end *exitError
			switch {
			case ctx.Err() != nil:
				return nil, cost.Cost{}, false, ctx.Err()
			case errors.Is(err, errTimeout):
				return nil, fail(phase, cost.KindTimeout, fmt.Sprintf("no answer within %v", limit)), false, nil
			case errors.Is(err, errMemory):
				return nil, fail(phase, cost.KindOutOfMemory,
					fmt.Sprintf("the worker held more than %d MiB", worker.most>>20)), false, nil
			case errors.As(err, &end):
				kind, detail := describeEnd(end)
				return nil, fail(phase, kind, detail), false, nil
			default: // not the protocol
				return nil, fail(phase, cost.KindError, err.Error()), false, nil
			}
		}
		switch r.Event {
		case "built":
			phase, limit = "run", p.options.RunTimeout
		case "progress":
		case "error":
			if r.Phase == cost.PhaseSetup {
				return nil, cost.Cost{}, true, &setupError{j.request.Label, r.Detail}
			}
			if r.Phase == "protocol" {
				return nil, cost.Cost{}, true, fmt.Errorf("measure: %s: the worker cannot measure: %s", j.request.Label,
					r.Detail)
			}
			return nil, errorCost(r, phase, fail), true, nil
		case "result":
			return line, cost.Cost{}, true, nil
		default:
			return nil, fail(phase, cost.KindError, fmt.Sprintf("the worker sent the unknown event %q", r.Event)), false, nil
		}
	}
}

// warm is for how long something runs before samples of it are taken: after a pause threads have to wake up and to come
// apart on the processors, clocks to rise and caches to fill, as they have in the middle of a network.
const warm = 8 * time.Millisecond

// warmInTurn is the same for what is timed right after something else: only caches are to be filled. (Of 20 candidates
// of ResNeXt-50 the latencies after 2 ms were 1.003 of those after 8, in the geometric mean, and after 0.5 ms 0.992.)
const warmInTurn = 2 * time.Millisecond

// message asks for a job.
func (o *Options) message(j *job) measureMessage {
	w := j.workload
	rtol, atol := tolerances(w.RTol, w.ATol)
	warming := warm
	if j.awake {
		warming = warmInTurn
	}
	message := measureMessage{
		Op: "measure", Function: w.Function, Constants: w.Constants, Compiler: w.Compiler,
		Target: o.Target, OptLevel: o.OptLevel, DisabledPasses: o.DisabledPasses, Key: j.request.Key.Structure,
		Threads: o.Threads, Samples: j.samples, MinSampleMs: float64(o.MinSample) / float64(time.Millisecond),
		WarmMs: float64(warming) / float64(time.Millisecond),
		Check:  w.Compiler != "" && !j.again, RTol: rtol, ATol: atol, Narrow: w.Narrow, Again: j.again,
		label: j.request.Label,
	}
	if message.Constants == nil {
		message.Constants = []cost.ConstantParam{}
	}
	if message.DisabledPasses == nil {
		message.DisabledPasses = []string{}
	}
	return message
}

// setupError says that a worker has not got what a backend needs.
type setupError struct{ label, detail string }

func (e *setupError) Error() string {
	return fmt.Sprintf("measure: %s: the worker cannot measure: %s", e.label, e.detail)
}

// describeEnd says what the end of a worker means for its candidate.
func describeEnd(end *exitError) (kind, detail string) {
	status, ok := end.state.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() && status.Signal() == syscall.SIGKILL {
		// Nobody else sends it unasked.
		return cost.KindOutOfMemory, "the worker was killed, most likely for want of memory"
	}
	return cost.KindCrash, end.Error()
}
