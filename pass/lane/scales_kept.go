// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/settings"
	"github.com/collage-tvm/collage/relay"
)

// What was seen of values is kept in the cost store (cost.ScalesKind): how long noise is tried, and on how many inputs
// values are looked at, goes by the clock, and what a search decides must not. So a store that has it once gives the
// same plans ever after, and nothing is built or run for it again.

// mostLooks is how often scales are looked for where that fails for what may have been the machine's fault.
const mostLooks = 2

// Know finds the steps of the values that candidates have rounded, where a placement has some of them and that was not
// done: its plan has them then. Where they cannot be found, what such placements cannot be built for is in unknown.
// Errors: as Build's, and the store's.
func (l *Lane) Know(ctx context.Context, p *genome.Placement) error {
	if !l.mustKnow(p) {
		return nil
	}
	values, wide := l.network.Watched()
	began := time.Now()
	scales, failure, err := l.looks(ctx, values, wide)
	if err == nil && failure == nil {
		if err = l.decideBiases(ctx, p, scales); err != nil {
			l.network.Forget()
		}
	}
	if err != nil {
		return err
	}
	c := cost.Cost{Samples: []float64{float64(time.Since(began)) / float64(time.Millisecond)}, Origin: cost.Measured,
		Scales: scales, Computation: fmt.Sprintf("%d values", len(values))}
	if failure != nil {
		c = cost.FromFailure(*failure, time.Now())
	}
	if l.learn(&c) {
		return nil
	}
	store, err := cost.OpenStore(l.options.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	return store.Put(l.scalesKey(values, wide), c)
}

// mustKnow says that a placement has values rounded whose steps nobody has found, and that looking for them may help.
func (l *Lane) mustKnow(p *genome.Placement) bool {
	again := l.unknown == nil || l.unknown.Unkept && l.failures < mostLooks
	return l.network.Scales() == nil && again && l.options.Inputs != nil &&
		(l.network.Rounds(p) || l.network.Biases() == settings.BiasesOn && l.network.Corrects(p))
}

// recall takes what the store has of the network's values.
func (l *Lane) recall() error {
	values, wide := l.network.Watched()
	if len(values) == 0 || l.options.Inputs == nil {
		return nil
	}
	store, err := cost.OpenStore(l.options.Store)
	if err != nil {
		return err
	}
	defer store.Close()
	c, known := store.Lookup(l.scalesKey(values, wide))
	if known && !(c.Failed() && l.options.RetryFailures) {
		l.learn(&c)
	}
	return nil
}

// scalesKey is the key of what is seen of these values, computed by this backend in float32.
func (l *Lane) scalesKey(values []relay.NodeID, wide string) cost.Key {
	n := l.network
	inputs, _ := json.Marshal(l.options.Inputs.Searched)
	text := n.Biases() + fmt.Sprint(values, cmp.Or(l.options.Data, string(inputs)))
	if method := l.options.ScaleMethod; method != "" {
		text += " " + string(method)
	} else {
		text += " " + l.options.ErrorMeasure
		if l.options.Data == "" { // else it says which they are, wherever their files lie
			compared, _ := json.Marshal(l.options.Inputs.Compared)
			text += string(compared)
		}
		if own := l.options.Inputs.Measure; own != nil {
			text += " " + own.Digest
		}
	}
	digest := sha256.Sum256([]byte(text))
	key := cost.Key{Kind: cost.ScalesKind, Structure: n.Hash, Backend: wide, Environment: n.Placing.Env,
		Composite: fmt.Sprintf("scales %d %s", network.ScalesRevision, hex.EncodeToString(digest[:6]))}
	if b := n.Placing.ByName[wide]; b != nil { // neither it nor TVM may be offered
		key.Library = n.Placing.Library(b)
	}
	return key
}

// learn takes in what was found about the values, now or earlier. passing says that nothing was, and that it may have
// been the machine's fault: then it is nothing to be kept.
func (l *Lane) learn(c *cost.Cost) (passing bool) {
	if c.Failed() {
		failure := *c.Failure
		if failure.Unkept = failure.Passing() && c.Origin != cost.Stored; failure.Unkept {
			l.failures++
		}
		l.unknown = &failure
		return failure.Unkept
	}
	if c.Scales == nil {
		return false // nothing of ours
	}
	l.unknown = nil
	l.network.Know(c.Scales)
	return false
}

// look has the network built by a backend in float32, as far as it takes it, with values as further results, and run
// on the inputs that are for scales. The failure says why nothing was seen. Errors: as Build's.
func (l *Lane) look(ctx context.Context, values []relay.NodeID, wide string) (scales *cost.Scales, why *cost.Failure,
	err error) {
	n := l.network
	if err := l.carry(); err != nil {
		return nil, nil, err
	}
	l.options.Progress(fmt.Sprintf("looking at %d values", len(values)))
	spec, _ := n.Spec(n.Apart(wide, values))
	results := 0
	for i := range spec.Functions {
		if f := &spec.Functions[i]; f.Name == "main" {
			f.Watched = values
			g := n.Placing.Functions[i].Set.Graph
			results = max(1, relay.TupleFields(g, g.Root()))
		}
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, nil, err
	}
	job := measure.NetworkBuild{Module: l.carried.Module, Params: l.carried.Params, Network: string(text),
		Compilers: compilersOf(&spec), Out: filepath.Join(l.folder, "watched"+l.options.Extension)}
	defer os.Remove(job.Out)
	jobs := []measure.NetworkBuild{job}
	plain := l.built[l.plain.Key]
	if plain == nil { // what is seen is held against it later, and there is another builder
		var beside measure.NetworkBuild
		if beside, plain, err = l.job(l.plain, ""); err != nil {
			return nil, nil, err
		}
		jobs = append(jobs, beside)
	}
	err = l.pool.Build(ctx, jobs, len(jobs), func(i int, b *measure.NetworkBuilt) error {
		if i > 0 {
			l.finish(plain, l.plain.Key, b)
			l.built[l.plain.Key] = plain
			return nil
		}
		if why = b.Failure; why != nil {
			return nil
		}
		seen, failure, err := l.pool.Watch(ctx, job.Out, results, n.Channels(values), l.options.Inputs)
		if err != nil || failure != nil {
			why = failure
			return err
		}
		if len(seen.Values) != len(values) {
			why = &cost.Failure{Phase: "run", Kind: cost.KindError,
				Detail: fmt.Sprintf("%d values were seen of %d", len(seen.Values), len(values))}
			return nil
		}
		scales, why, err = l.made(ctx, job.Out, results, values, &seen)
		return err
	})
	return scales, why, err
}
