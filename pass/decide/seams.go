// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"context"

	"github.com/collage-tvm/collage/byoc"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel"
	"github.com/collage-tvm/collage/pass/graphlevel/feedback"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/lane"
	"github.com/collage-tvm/collage/pass/measure"
	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/place"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/witness"
	"github.com/collage-tvm/collage/pass/workers"
	"github.com/collage-tvm/collage/relay"
)

// What takes time stands behind these, so that whether the time is kept can be tried on a clock of the tests':
// network.Network, lane.Lane and measure.Pool do the work.

// someNetwork is what is known about the module's candidates: a network.Network but in tests.
type someNetwork interface {
	placed() *genome.Placement
	space() *genome.Space
	Backends() []byoc.Backend
	Key() cost.Key
	Overhead() place.Overhead
	Bounded() [][]bool
	Learn(until context.Context, tables []*feedback.Table, likelyOnly bool) error
	Renew()
	Plan(p *genome.Placement, learnt *graphlevel.Result) (*plan.Plan, error)
	Exchange(p *genome.Placement, learnt *graphlevel.Result, into *plan.Plan)
	Alone(backend string) *genome.Placement
	Tuned(backends ...string) *genome.Placement
	GroupedKernels() []string
	Grouped(kernel string, backends ...string) *genome.Placement
	Together(backends ...string) *genome.Placement
	Families() [][]string
	Left(p *genome.Placement) int
	BackendsOf(p *genome.Placement) []string
	RunnersUp() []graphlevel.Seed
	Kept(p *genome.Placement) func() *genome.Placement
	Adds(function int, v relay.NodeID, in byoc.Precision) (square float64, known bool)
	Scales() *cost.Scales
	ScalesText(p *genome.Placement) string
}

// someLane builds and measures whole networks: a lane.Lane but in tests.
type someLane interface {
	graphlevel.Estimator
	Plain() *genome.Placement
	Build(ctx context.Context, placements []*genome.Placement) error
	Know(ctx context.Context, p *genome.Placement) error
	Built(p *genome.Placement) bool
	Executable(ctx context.Context, p *genome.Placement) (*lane.Executable, error)
	Footprint(ctx context.Context, e *lane.Executable) (measure.Footprint, error)
	Agree(ctx context.Context, e *lane.Executable, t witness.Testimony) (witness.Agreement, error)
	Forget(keep ...*genome.Placement)
	Rest()
	Renew() error
	Close()
}

// runner runs finished models in turn.
type runner interface {
	Compare(ctx context.Context, models []measure.Model, options measure.CompareOptions) (*measure.Comparison, error)
	Close() error
}

// opened is a network.Network.
type opened struct{ *network.Network }

func (o opened) placed() *genome.Placement { return o.Placed }
func (o opened) space() *genome.Space      { return o.Space }

// newRunner is measure.NewPool.
func (c *decision) newRunner() (runner, error) {
	if c.testRunner != nil {
		return c.testRunner, nil
	}
	return measure.NewPool(measure.Options{
		Settings: measure.Settings{Target: c.target, OptLevel: c.OptLevel, Threads: c.Threads},
		Python:   c.Python,
		Env:      workers.WorkerEnvironment(),
		Poll:     c.poll,
		Trace:    c.Trace,
	})
}
