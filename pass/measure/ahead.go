// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
)

const (
	// mostInBatch is how many computations are built at once: they share kernels, and cost less each (RATIONALE).
	// firstInBatch is how many a builder begins with, so that whoever waits for the first of them does not wait for long.
	mostInBatch  = 32
	firstInBatch = 8
	// fewestForBuilder: for fewer computations a further worker is not worth its start.
	fewestForBuilder = 4
)

// ahead has plain TVM's code of computations built before it is needed, in worker processes of its own, many
// computations in one library. It is what TVM's candidates are measured with, and what the others are checked against.
//
// It only saves time: what it cannot build is left to the worker that measures, which says what is wrong with it. A
// computation is one by cost.Key.Structure. All methods are called by one goroutine.
type ahead struct {
	options  *Options
	dir      string
	builders []*builder
	known    map[string]*code
	wanted   []*code // somebody waits for it
	later    []*code // somebody may want it later
	done     chan *batch
	loads    []*batch // what the worker that measures must load yet
	loaded   []*batch // what it has loaded; the files stay, for another one after a crash
	batches  int
	started  int
	paused   bool
	ctx      context.Context
	cancel   context.CancelFunc
}

// builder is one worker that builds.
type builder struct {
	process *process
	batch   *batch // nil while it has nothing to do
	begun   bool   // it has built something
}

// code is what is known about the code of a computation.
type code struct {
	request  *cost.Request
	workload *cost.Workload
	state    codeState
	// expected: it is among later.
	expected bool
	// most is how many may be in a batch with it: half of one that failed; 0 for as many as anywhere.
	most int
}

type codeState int

const (
	codeUnknown codeState = iota
	codeWanted
	codeBuilding
	codeBuilt // its manifest waits to be loaded
	codeLoaded
	codeGivenUp
)

// batch is what one builder builds at once.
type batch struct {
	builder  *builder
	items    []*code
	message  buildMessage
	manifest string
	// failed says that nothing came of it; hopeless that nothing will.
	failed, hopeless bool
	alive            bool
}

func newAhead(o *Options, dir string) *ahead {
	a := &ahead{options: o, dir: dir, known: map[string]*code{}, done: make(chan *batch, o.Builders)}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	for range o.Builders {
		a.builders = append(a.builders, &builder{})
	}
	return a
}

// close ends the builders.
func (a *ahead) close() {
	a.cancel()
	for _, b := range a.builders {
		if b.batch != nil {
			<-a.done // of any of them
		}
	}
	for _, b := range a.builders {
		b.batch = nil
		if b.process != nil {
			b.process.kill()
			b.process = nil
		}
	}
}

func (a *ahead) code(r *cost.Request) *code {
	c := a.known[r.Key.Structure]
	if c == nil {
		c = &code{request: r}
		a.known[r.Key.Structure] = c
	}
	return c
}

// want says that somebody waits for a computation. workload may be nil.
func (a *ahead) want(r *cost.Request, workload *cost.Workload) {
	if c := a.code(r); c.state == codeUnknown {
		c.request, c.workload, c.state = r, workload, codeWanted
		a.wanted = append(a.wanted, c)
	}
}

// expect says that somebody may want these, in this order, and has the builders begin.
func (a *ahead) expect(requests []cost.Request) error {
	for i := range requests {
		if c := a.code(&requests[i]); c.state == codeUnknown && !c.expected {
			c.expected = true
			a.later = append(a.later, c)
		}
	}
	return a.dispatch()
}

// settled says that there is nothing to wait for.
func (a *ahead) settled(r *cost.Request) bool {
	c := a.known[r.Key.Structure]
	return c != nil && (c.state == codeLoaded || c.state == codeGivenUp)
}

// pending counts computations that are not being built yet.
func (a *ahead) pending() int {
	n := len(a.wanted)
	for _, c := range a.later {
		if c.state == codeUnknown {
			n++
		}
	}
	return n
}

// dispatch gives idle builders work, and starts them where there is enough of it. An error is one of a request's Build.
func (a *ahead) dispatch() error {
	if a.paused {
		return nil
	}
	running, building := 0, 0
	for _, b := range a.builders {
		if b.process != nil {
			running++
		}
		if b.batch != nil {
			building += len(b.batch.items)
		}
	}
	for _, b := range a.builders {
		if b.batch != nil {
			continue
		}
		if b.process == nil {
			if a.pending()+building < fewestForBuilder*(running+1) {
				continue
			}
			var err error
			if b.process, err = launch(a.options, a.dir, roleBuilding); err != nil {
				return err
			}
			running++
			a.started++
		}
		items, err := a.next(b)
		if err != nil {
			return err
		}
		if len(items) > 0 {
			building += len(items)
			a.start(b, items)
		}
	}
	if running == 0 {
		for _, c := range a.wanted {
			c.state = codeGivenUp
		}
		a.wanted = nil
	}
	return nil
}

// next takes the computations of a builder's next batch: what is waited for, and behind that what may be.
func (a *ahead) next(b *builder) ([]*code, error) {
	var items []*code
	most := firstInBatch
	if b.begun {
		most = mostInBatch
	}
	size := min(most, max(fewestForBuilder, (a.pending()+len(a.builders)-1)/len(a.builders)))
	for len(a.wanted) > 0 && len(items) < size {
		c := a.wanted[0]
		if c.most > 0 {
			if size = min(size, c.most); len(items) >= size {
				break
			}
		}
		a.wanted = a.wanted[1:]
		items = append(items, c)
	}
	for len(a.later) > 0 && len(items) < size {
		c := a.later[0]
		a.later = a.later[1:]
		if c.state == codeUnknown {
			items = append(items, c)
		}
	}
	for _, c := range items {
		if c.workload == nil {
			w, err := c.request.Build()
			if err != nil {
				return nil, fmt.Errorf("measure: %s: %w", c.request.Label, err)
			}
			c.workload = w
		}
		c.state = codeBuilding
	}
	return items, nil
}

// start has a builder build, on a goroutine of its own.
func (a *ahead) start(b *builder, items []*code) {
	a.batches++
	t := &batch{builder: b, items: items,
		message: buildMessage{Op: "build", Folder: a.dir, Name: fmt.Sprintf("batch%d", a.batches)}}
	for _, c := range items {
		m := a.options.message(&job{request: c.request, workload: c.workload})
		m.Compiler, m.Check = "", false
		t.message.Items = append(t.message.Items, m)
	}
	b.batch, b.begun = t, true
	process, greeted := b.process, b.process.lastID > 0
	go func() {
		defer func() {
			if recover() != nil {
				t.failed, t.hopeless, t.alive = true, true, false
			}
			a.done <- t
		}()
		if !greeted {
			if err := process.greet(a.ctx, a.options); err != nil {
				t.failed, t.hopeless = true, true
				return
			}
		}
		t.build(a.ctx, process, a.options.BuildTimeout)
	}()
}

// build asks a worker.
func (t *batch) build(ctx context.Context, worker *process, limit time.Duration) {
	t.failed = true
	worker.lastID++
	t.message.ID = worker.lastID
	if worker.send(t.message) != nil {
		return
	}
	r, line, err := worker.receive(ctx, limit)
	if err != nil {
		// Each by itself gets as long again, where it is measured.
		t.hopeless = errors.Is(err, errTimeout)
		return
	}
	t.alive = true
	var result buildResult
	if r.Event == "result" && json.Unmarshal(line, &result) == nil && result.Manifest != "" {
		t.manifest, t.failed = result.Manifest, false
	}
}

// finish takes what came out of a.done.
func (a *ahead) finish(t *batch) {
	b := t.builder
	b.batch = nil
	if !t.alive || b.process.memory() > a.options.MaxMemory {
		b.process.kill()
		b.process = nil
	}
	if !t.failed {
		a.loads = append(a.loads, t)
		for _, c := range t.items {
			c.state = codeBuilt
		}
		return
	}
	single := len(t.items) == 1
	var again []*code
	for _, c := range t.items {
		if single || t.hopeless {
			c.state = codeGivenUp
			continue
		}
		c.state, c.most = codeWanted, (len(t.items)+1)/2
		again = append(again, c)
	}
	a.wanted = slices.Concat(again, a.wanted)
}

// load says that the worker that measures has loaded a batch, or (false) that it could not.
func (a *ahead) load(t *batch, ok bool) {
	for _, c := range t.items {
		if c.state = codeLoaded; !ok {
			c.state = codeGivenUp
		}
	}
	if ok {
		a.loaded = append(a.loaded, t)
	}
}

// forget says that the worker that had loaded everything is gone: the next one must load it, too.
func (a *ahead) forget() {
	for _, t := range a.loaded {
		for _, c := range t.items {
			c.state = codeBuilt
		}
	}
	a.loads = append(a.loaded, a.loads...)
	a.loaded = nil
}

// pause makes the builders stand still, and resume lets them go on.
func (a *ahead) pause() {
	if a.paused {
		return
	}
	a.paused = true
	for _, b := range a.builders {
		if b.batch != nil && b.process != nil {
			b.process.pause()
		}
	}
}

func (a *ahead) resume() {
	a.paused = false
	for _, b := range a.builders {
		if b.process != nil {
			b.process.resume()
		}
	}
}
