// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/collage-tvm/collage/internal/progress"
	"github.com/collage-tvm/collage/pass/budget"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/pass/plan"
)

// Where TVM's virtual machine runs the network and nothing was run at fixed sizes, building ends with the time, but not
// before plain TVM, what was placed, and the backend that takes the most.
func TestBuildingForTheMachineKeepsToTheTime(t *testing.T) {
	taking := func(name string, operators int) *finalist {
		return &finalist{name: name, eligible: true, plan: &plan.Plan{Backends: []plan.Backend{
			{Name: "tvm", Operators: 9 - operators}, {Name: name, Operators: operators}}}}
	}
	tvm, placed := &finalist{name: "tvm"}, &finalist{name: plan.PlacementName, plan: &plan.Plan{}}
	some, most, few := taking("some", 5), taking("most", 7), taking("few", 2)
	now := time.Unix(0, 0)
	c := &decision{reference: tvm, finalists: []*finalist{tvm, some, few, most, placed},
		machine: &placing.NotWholeError{Where: "%1", Reason: "is a branch"},
		budget:  budget.New(time.Minute, func() time.Time { return now })}
	c.Backends, c.Progress = []string{"tvm", "some", "few", "most"}, &progress.Printer{}
	assert.Equal(t, []*finalist{tvm, most, placed, some, few}, c.byExpected(c.finalists))
	assert.False(t, c.tooLate(), "nothing is known of how long it takes")
	now = now.Add(20 * time.Second)
	c.budget.Built(20 * time.Second)
	assert.False(t, c.tooLate(), "two more can be built")
	now = now.Add(20 * time.Second)
	c.budget.Built(20 * time.Second)
	assert.True(t, c.tooLate(), "there are 20 seconds less what writing takes")
	c.leaveOut([]*finalist{some, few})
	assert.Equal(t, []*finalist{tvm, most, placed}, c.finalists)
	assert.Equal(t, []string{"There was no time to build some alone and few alone."}, c.warnings)

	c.Rounds = 20
	assert.Equal(t, 20, c.expectedRounds(), "how long they take is not known")
	now = now.Add(time.Minute)
	assert.Equal(t, leastRounds, c.expectedRounds(), "building took all the time")
	assert.True(t, c.noTimeFor(time.Second))

	c.machine = nil
	assert.Equal(t, 20, c.expectedRounds())
	assert.False(t, c.noTimeFor(time.Second))
	assert.False(t, c.tooLate(), "where the graph executor runs them, the search has kept time for them")
	assert.Equal(t, []*finalist{some, tvm}, c.byExpected([]*finalist{some, tvm}))
}
