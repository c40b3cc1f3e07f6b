// SPDX-License-Identifier: Apache-2.0

package lane

import (
	"cmp"
	"context"
	"os"
	"slices"

	"github.com/collage-tvm/collage/pass/annotate"
	"github.com/collage-tvm/collage/pass/cost"
	"github.com/collage-tvm/collage/pass/graphlevel/genome"
	"github.com/collage-tvm/collage/pass/trace"
)

// Executable is a network that was built.
type Executable struct {
	// Path is the file; "" where it could not be built, and then Failure says why.
	Path    string
	Bytes   int64
	Failure *cost.Failure

	score   float64 // 0 until it was measured
	kernels *trace.Executable
	regions []annotate.Region // those of main, with symbols
	narrow  bool              // computes in a narrower type than the network's
}

// Built says that a placement was built in this run, and is there.
func (l *Lane) Built(p *genome.Placement) bool {
	e, done := l.built[p.Key]
	return done && e.Path != ""
}

// Executable builds a placement where that was not done, and gives what came of it.
func (l *Lane) Executable(ctx context.Context, p *genome.Placement) (*Executable, error) {
	if err := l.Build(ctx, []*genome.Placement{p}); err != nil {
		return nil, err
	}
	return l.built[p.Key], nil
}

// Forget removes the executables of placements other than those named.
func (l *Lane) Forget(keep ...*genome.Placement) {
	for key, e := range l.built {
		if e.Path == "" || key == l.plain.Key ||
			slices.ContainsFunc(keep, func(p *genome.Placement) bool { return p.Key == key }) {
			continue
		}
		if e == l.pace.executable {
			l.pace, l.begun = pace{}, false // who follows is not one of the first
		}
		_ = os.Remove(e.Path)
		delete(l.built, key)
	}
}

// mostKept is how many bytes of executables are kept at most, as long as it is not the last few: in large networks each
// has hundreds of megabytes of weights.
const mostKept = 3 << 30

// evict removes the executables of the worst networks while there are too many bytes of them; should one of them be
// wanted after all, it is built again.
func (l *Lane) evict() {
	var order []string
	total := int64(0)
	for key, e := range l.built {
		if e.Path != "" && key != l.plain.Key && e != l.pace.executable {
			order, total = append(order, key), total+e.Bytes
		}
	}
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(cmp.Compare(l.built[b].score, l.built[a].score), cmp.Compare(a, b))
	})
	const few = 4
	for i := 0; i < len(order)-few && total > mostKept; i++ {
		e := l.built[order[i]]
		total -= e.Bytes
		_ = os.Remove(e.Path)
		delete(l.built, order[i])
	}
}
