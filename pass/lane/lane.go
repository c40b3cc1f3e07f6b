// SPDX-License-Identifier: Apache-2.0

// Package lane builds whole networks in worker processes, runs each in turn with the fastest so far, and profiles it:
// a Lane.
package lane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/collage-tvm/collage/bridge"
	"github.com/collage-tvm/collage/byoc/rounding"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/normalise"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/pass/witness"
	"github.com/collage-tvm/collage/pass/workers"
	"github.com/collage-tvm/collage/relay"
)

// Lane is a graphlevel.Estimator that builds networks in worker processes, runs each in turn with the fastest so far,
// at first plain TVM's, and profiles it. Executables stay in its folder until Close.
type Lane struct {
	network *network.Network
	options Options
	pool    *measure.Networks
	carried network.Carried
	folder  string
	built   map[string]*Executable // by the placement's key
	plain   *genome.Placement
	pace    pace
	// begun says that what follows plain TVM's is one of the first: it was measured in this run, which goes on from
	// nothing else, and its followers are there.
	begun bool
	// unknown is why the scales that some backends need are not known; nil where they are, or were not asked for.
	// failures counts how often looking for them failed for what may have been the machine's fault.
	unknown  *cost.Failure
	failures int
	// looks is look, but for tests.
	looks func(ctx context.Context, values []relay.NodeID, wide string) (*cost.Scales, *cost.Failure, error)
	ahead []*genome.Placement // what is wanted after the next Measure (Ahead)
}

// Options say how a Lane works.
type Options struct {
	// Folder is where executables and what is needed to build them are kept; the caller removes it.
	Folder string
	// Extension is that of the executables, ".so" or ".tar".
	Extension string
	// Rounds is how often a network is run, unless it is hopeless before; 0 for DefaultNetworkRounds.
	Rounds int
	// Builders is how many networks are built side by side; 0 for 2.
	Builders int
	// Time is how long the whole search may take; 0 for as long as it likes. In less than unhurried, networks are run for
	// less time to see how to round their values.
	Time time.Duration
	// Python is the interpreter of the workers; "" as in Config.
	Python string
	// Poll is called while workers are waited for; an error of it ends what is going on. nil: bridge.CheckSignals.
	Poll func() error
	// Inputs are those on which errors are taken of every network but plain TVM's; nil where they are not.
	Inputs *measure.Inputs
	// Data tells the calibration data that Inputs are samples of from others (Taken.ScalesDigest); "" for random
	// inputs.
	Data string
	// ScaleMethod is how scales are made of what is seen of values; "" for the method by which the outputs are off the
	// least in ErrorMeasure, one that Limit of settings.Precision has.
	ScaleMethod  rounding.Method
	ErrorMeasure string
	// Store is the file of costs that keeps what was seen of the network's values; "" for the user's. RetryFailures
	// looks again where that failed before.
	Store         string
	RetryFailures bool
	// Progress is told what is being done ("building feedback 1"). May be nil.
	Progress func(what string)
	// Quiet is called before something is timed: it waits until nothing else of the caller's runs. May be nil.
	Quiet func(ctx context.Context) error
	// Doubt is by how much plain TVM's outputs are off another engine's, as a share of the greatest; asked after Quiet.
	// May be nil.
	Doubt func() float64
	// Built is told how long each network took to be built, and Ran how long each took to be loaded, run and profiled,
	// and how much of that was its profile. May be nil.
	Built func(took time.Duration)
	Ran   func(took, profile time.Duration)
}

// DefaultNetworkRounds is how many rounds are run of each network in the search.
const DefaultNetworkRounds = 9

// networkSample is how long one sample of a network takes at least: small networks are run again and again. It is
// longer than for candidates, since fewer samples are taken, and of more things that can go wrong.
const networkSample = 10 * time.Millisecond

// unhurried is how long a search takes in which how to round values is looked at as long as that is worth something.
// With half a minute of looking and building for it, a search of a minute had time for one network that computes in
// bytes (RATIONALE).
const unhurried = 2 * time.Minute

// roundsAtOnce is how many rounds are run before it is asked whether a network is hopeless.
const roundsAtOnce = 3

// profileRounds is how often a network is run to time its kernels.
const profileRounds = 5

// New prepares for building and measuring a network's placements. Close it.
func New(network *network.Network, options Options) (*Lane, error) {
	if options.Rounds <= 0 {
		options.Rounds = DefaultNetworkRounds
	}
	if options.Builders <= 0 {
		options.Builders = 2
	}
	if options.Extension == "" {
		options.Extension = ".so"
	}
	if options.Poll == nil {
		options.Poll = bridge.CheckSignals
	}
	if options.Progress == nil {
		options.Progress = func(string) {}
	}
	if options.Quiet == nil {
		options.Quiet = func(context.Context) error { return nil }
	}
	if options.Doubt == nil {
		options.Doubt = func() float64 { return 0 }
	}
	if options.Built == nil {
		options.Built = func(time.Duration) {}
	}
	if options.Ran == nil {
		options.Ran = func(_, _ time.Duration) {}
	}
	l := &Lane{network: network, options: options, folder: options.Folder, built: map[string]*Executable{}}
	l.looks = l.look
	var err error
	if l.plain, err = network.Reference(); err != nil {
		return nil, err
	}
	cfg := network.Placing.Config
	if err := l.recall(); err != nil {
		return nil, err
	}
	interpreter, err := workers.Python(&settings.Config{Python: options.Python})
	if err != nil {
		return nil, err
	}
	l.pool, err = measure.NewNetworks(measure.Options{
		Hurry: hurry(options.Time),
		Settings: measure.Settings{Target: cfg.Target, OptLevel: *cfg.OptLevel,
			DisabledPasses: normalise.BuildWithout(cfg.DisabledPasses),
			TuningLog:      cfg.TuningLog, Threads: cfg.Threads, MinSample: networkSample},
		Python: interpreter, Env: workers.WorkerEnvironment(), MemoryLimit: cfg.MemoryLimit, Poll: options.Poll, Trace: cfg.Recorder,
	}, options.Builders, options.Folder)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// hurry is measure.Options.Hurry of a search that may take so long; 0 for as long as it likes.
func hurry(search time.Duration) float64 {
	if search <= 0 {
		return 1
	}
	return min(1, search.Seconds()/unhurried.Seconds())
}

// Close ends the workers. The executables stay where they are.
func (l *Lane) Close() { l.pool.Close() }

// Plain is the placement that everything is held against: everything on TVM, whether that may be chosen or not.
func (l *Lane) Plain() *genome.Placement { return l.plain }

var (
	_ graphlevel.Estimator = (*Lane)(nil)
	_ graphlevel.Ahead     = (*Lane)(nil)
)

// Build builds those of the placements that were not built yet, side by side. What cannot be built has its reason in
// Executable.Failure. Errors: as measure.Networks.Build's; what was finished before is kept.
func (l *Lane) Build(ctx context.Context, placements []*genome.Placement) error {
	return l.build(ctx, placements, nil)
}

// Ahead implements graphlevel.Ahead: the next Measure has these built while it waits for its own.
func (l *Lane) Ahead(placements []*genome.Placement) { l.ahead = placements }

// build builds placements, and of those that are wanted later as many as are begun before the last of them is finished.
func (l *Lane) build(ctx context.Context, placements, later []*genome.Placement) error {
	if err := l.carry(); err != nil {
		return err
	}
	later = slices.DeleteFunc(slices.Clone(later), l.mustKnow) // nobody waits for that yet
	for _, p := range placements {
		if l.mustKnow(p) {
			delete(l.built, p.Key) // it was not built for want of scales
		}
		if err := l.Know(ctx, p); err != nil {
			return err
		}
	}
	var jobs []measure.NetworkBuild
	var made []*Executable
	var keys []string
	wanted := 0
	for i, p := range slices.Concat(placements, later) {
		if _, done := l.built[p.Key]; done || slices.Contains(keys, p.Key) {
			continue
		}
		if l.unknown != nil && l.network.Rounds(p) {
			l.built[p.Key] = &Executable{Failure: l.unknown}
			continue
		}
		job, e, err := l.job(p, "")
		if err != nil {
			return err
		}
		made, keys = append(made, e), append(keys, p.Key)
		if i < len(placements) {
			wanted++
		}
		jobs = append(jobs, job)
	}
	return l.pool.Build(ctx, jobs, wanted, func(i int, b *measure.NetworkBuilt) error {
		l.finish(made[i], keys[i], b)
		l.built[keys[i]] = made[i] // those that were not finished are built when they are asked for again
		return nil
	})
}

// job is what a placement is to be built of, and the executable that it becomes, in a file whose name ends so.
func (l *Lane) job(p *genome.Placement, suffix string) (measure.NetworkBuild, *Executable, error) {
	spec, named := l.network.Spec(p)
	text, err := json.Marshal(spec)
	if err != nil {
		return measure.NetworkBuild{}, nil, err
	}
	e := &Executable{Path: filepath.Join(l.folder, "network-"+p.Key+suffix+l.options.Extension),
		narrow: l.network.Narrow(p)}
	for i, f := range spec.Functions {
		if f.Name == "main" {
			e.regions = named[i]
		}
	}
	return measure.NetworkBuild{Module: l.carried.Module, Params: l.carried.Params, Network: string(text),
		Compilers: compilersOf(&spec), Out: e.Path}, e, nil
}

// finish says of an executable, of a placement with this key, what became of its job.
func (l *Lane) finish(e *Executable, key string, b *measure.NetworkBuilt) {
	e.Bytes, e.kernels, e.Failure = b.Bytes, b.Executable, b.Failure
	if e.Failure != nil {
		e.Path = ""
	} else if key != l.plain.Key { // which no other network takes as long as
		l.options.Built(time.Duration(b.Seconds * float64(time.Second)))
	}
}

// carry writes the network for the workers where that was not done.
func (l *Lane) carry() (err error) {
	if l.carried.Module == "" {
		l.carried, err = l.network.Save(l.folder)
	}
	return err
}

func compilersOf(spec *network.Spec) []string {
	compilers := []string{}
	for _, f := range spec.Functions {
		for _, r := range f.Regions {
			if !slices.Contains(compilers, r.Compiler) {
				compilers = append(compilers, r.Compiler)
			}
		}
	}
	slices.Sort(compilers)
	return compilers
}

// Renew takes in that the network has other candidates since (Network.Learn). What was built stays.
func (l *Lane) Renew() (err error) {
	l.plain, err = l.network.Reference()
	return err
}

// Footprint measures what an executable takes of memory.
func (l *Lane) Footprint(ctx context.Context, e *Executable) (measure.Footprint, error) {
	return l.pool.Footprint(ctx, e.Path)
}

// Agree holds what an executable computes against what another engine answered for the same inputs. Errors: as
// measure.Networks.Agree's.
func (l *Lane) Agree(ctx context.Context, e *Executable, t witness.Testimony) (witness.Agreement, error) {
	return l.pool.Agree(ctx, e.Path, t)
}

// Rest ends the worker that measures, so that nothing of it is in the way of others.
func (l *Lane) Rest() { l.pool.Rest() }

// Measure implements graphlevel.Estimator.
func (l *Lane) Measure(ctx context.Context, placements []*genome.Placement, best *cost.Cost,
	taken func(i int, c cost.Cost) error) error {
	started := time.Now()
	l.options.Progress(fmt.Sprintf("building %d", len(placements)))
	later := l.ahead
	l.ahead = nil
	if err := l.build(ctx, append([]*genome.Placement{l.plain}, placements...), later); err != nil {
		return err
	}
	plain := l.built[l.plain.Key]
	if plain.Failure != nil {
		return &placing.NotWholeError{Where: "TVM", Reason: "cannot build it: " + plain.Failure.String()}
	}
	building := time.Since(started).Seconds() / float64(len(placements))
	for i, p := range placements {
		started := time.Now()
		e := l.built[p.Key]
		var c cost.Cost
		var profile time.Duration
		if e.Failure != nil {
			c = cost.FromFailure(*e.Failure, time.Now())
			c.Failure.Unkept = c.Failure.Phase == cost.PhaseSetup
		} else {
			l.options.Progress("measuring")
			var err error
			if c, profile, err = l.measure(ctx, e, plain, best); err != nil {
				return err
			}
		}
		if c.Network == nil {
			c.Network = &cost.Network{}
		}
		var late error
		if !c.Failed() {
			late = l.paced(ctx, e, plain, &c)
		}
		if e.Failure == nil {
			l.options.Ran(time.Since(started), profile)
		}
		e.score = graphlevel.Score(c)
		c.Network.Seconds = building + time.Since(started).Seconds()
		if err := taken(i, c); err != nil {
			return err
		}
		if late != nil { // what was measured is kept all the same
			return late
		}
	}
	l.evict()
	return nil
}

// errNoProfile says that a network's kernels cannot be told apart; it is measured as a whole all the same.
var errNoProfile = errors.New("its kernels cannot be told apart")

// measure runs and profiles a network; profiling is how long the latter took.
func (l *Lane) measure(ctx context.Context, e, plain *Executable, best *cost.Cost) (c cost.Cost,
	profiling time.Duration, err error) {
	if err := l.options.Quiet(ctx); err != nil {
		return cost.Cost{}, 0, err
	}
	rounds := l.options.Rounds
	if e == plain { // which is compared with itself
		rounds = roundsAtOnce
	}
	run := measure.NetworkRun{Model: e.Path, Reference: plain.Path, Against: plain.Path, Step: roundsAtOnce,
		Rounds: rounds, Inputs: l.options.Inputs, Narrow: e.narrow, Doubt: l.options.Doubt(),
		More: func(c cost.Cost) bool { return best == nil || !graphlevel.Hopeless(c, *best) }}
	if l.pace.executable != nil && e != plain {
		run.Against, run.Pace = l.pace.executable.Path, l.pace.score
		// The best so far may be the luckiest of many, and the pace one that may not be kept: who is given up is behind
		// both.
		run.More = func(c cost.Cost) bool {
			return best == nil || !graphlevel.Hopeless(c, *best) || !graphlevel.Behind(c, l.pace.score)
		}
	}
	if undecided := run.More; e != plain {
		run.More = func(c cost.Cost) bool { return undecided(c) && !farAhead(c) }
	}
	c, err = l.pool.Run(ctx, run)
	if err == nil && c.Failed() && c.Failure.Kind == cost.KindBadMeasure {
		err = badMeasure(c.Failure)
	}
	if err != nil || c.Failed() {
		return c, 0, err
	}
	c.Network.Bytes = e.Bytes
	began := time.Now()
	profile, err := l.profile(ctx, e, plain)
	profiling = time.Since(began)
	switch {
	case err == nil:
		graphlevel.RecordProfile(profile, c.Network)
	case errors.Is(err, errNoProfile):
		c.Network.Whole = append(c.Network.Whole, cost.NetworkWhole{Why: err.Error()})
	default:
		return c, profiling, err
	}
	return c, profiling, nil
}

// paced makes a network that was measured, at c, the one that the next ones run in turn with, where it is the fastest.
// Plain TVM may take many times as long, and its time to it is known. The rounds that this takes are added to c's,
// which is a failure where the network fails in them.
func (l *Lane) paced(ctx context.Context, e, plain *Executable, c *cost.Cost) error {
	if e == plain {
		l.begun = true
	} else {
		fresh, err := l.pace.follow(ctx, e, *c, !l.begun, func(ctx context.Context) (cost.Cost, error) {
			if err := l.options.Quiet(ctx); err != nil {
				return cost.Cost{}, err
			}
			return l.pool.Run(ctx, measure.NetworkRun{Model: e.Path, Reference: plain.Path, Narrow: e.narrow,
				Against: l.pacePath(plain), Pace: l.pace.score, Doubt: l.options.Doubt(), Step: roundsAtOnce,
				Rounds: l.options.Rounds})
		})
		switch {
		case err != nil:
			return err
		case fresh.Failed():
			*c = fresh
			if c.Network == nil {
				c.Network = &cost.Network{}
			}
		case fresh.Known():
			c.Samples = append(c.Samples, fresh.Samples...)
			c.Network.Against = append(c.Network.Against, fresh.Network.Against...)
		}
	}
	return l.pool.Drop(ctx, l.pacePath(plain))
}

// pacePath is the file of what networks run in turn with.
func (l *Lane) pacePath(plain *Executable) string {
	if l.pace.executable != nil {
		return l.pace.executable.Path
	}
	return plain.Path
}

func (l *Lane) profile(ctx context.Context, e, plain *Executable) (*feedback.Profile, error) {
	if e.kernels == nil {
		return nil, fmt.Errorf("%w: TVM did not say which kernel computes what", errNoProfile)
	}
	times, failure, err := l.pool.Profile(ctx, e.Path, plain.Path, profileRounds)
	if err != nil {
		return nil, err
	}
	if failure != nil {
		return nil, fmt.Errorf("%w: %s", errNoProfile, failure)
	}
	set, err := l.network.Main()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoProfile, err)
	}
	if got, want := len(times.Kernels), len(e.kernels.Kernels); got != want {
		return nil, fmt.Errorf("%w: it was built with %d and ran %d", errNoProfile, want, got)
	}
	profile, err := feedback.Attribute(set, e.regions, e.kernels, times)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoProfile, err)
	}
	return profile, nil
}
