// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/pass/network"
	"github.com/collage-tvm/collage/pass/placing"
	"github.com/collage-tvm/collage/relay"
)

// lookAtForm finds out what runs the network: TVM's graph executor, or, where it branches or has shapes that are known
// only when it runs, TVM's virtual machine. Error: that of placing.Whole where nothing can be built for the machine.
func (c *decision) lookAtForm() error {
	err := placing.Whole(c.module)
	if err == nil {
		return nil
	}
	if !errors.As(err, &c.machine) || c.Build == nil {
		return err
	}
	if c.ExecutableMemory > 0 {
		return fmt.Errorf("--memory-limit-executable: what a network takes is not known on TVM's virtual machine, which "+
			"runs this one (%s %s)", c.machine.Where, c.machine.Reason)
	}
	c.note("TVM's virtual machine runs it, since %s %s.", c.machine.Where, c.machine.Reason)
	return nil
}

// openPartsName is the finalist that has parts of open sizes on one backend, whose title says which, and the
// others as they are placed.
const openPartsName = "open parts"

// placeOnMachine makes finalists of plain TVM, of every backend alone, and of what is placed: where sizes are open, what a
// search among whole networks finds at fixed ones (placeAtSize), and otherwise what candidates take alone, with and
// without what the backend that takes the most takes of open sizes. They are run on TVM's virtual machine: what parts take
// in place only the graph executor tells.
func (c *decision) placeOnMachine() error {
	if err := c.quiet(c.ctx); err != nil {
		return err
	}
	placed, err := c.placeAtSize()
	byParts := err == nil && len(placed) == 0
	if byParts {
		var one *finalist
		if one, err = c.placement(); err == nil {
			placed = []*finalist{one}
			c.note("It was placed by what its parts take alone.")
		}
	}
	if err != nil {
		return err
	}
	if c.reference, err = c.single("tvm"); err != nil {
		return err
	}
	if c.reference.eligible = !c.constrained(); !c.reference.eligible {
		c.finalists = placed
		return nil // outputs are held against it, and only the placement keeps to what was asked for
	}
	var most *finalist
	c.finalists = []*finalist{c.reference}
	for _, b := range placed[0].plan.Backends {
		if b.Name == "tvm" || b.Unusable != "" {
			continue
		}
		alone, err := c.single(b.Name)
		if err != nil {
			return err
		}
		c.finalists = append(c.finalists, alone)
		if most == nil || alone.takes() > most.takes() {
			most = alone
		}
	}
	if byParts && most != nil {
		if placed, err = c.withOpenParts(placed[0], most); err != nil {
			return err
		}
	}
	c.finalists = append(c.finalists, placed...)
	return nil
}

// withOpenParts is what is placed, and before it the same with what a backend takes of parts with open dimensions: what
// candidates take alone says nothing of these, and TVM would have them all.
func (c *decision) withOpenParts(placed, alone *finalist) ([]*finalist, error) {
	var nodes []relay.NodeID // the same ones
	for i := range placed.plan.Module.Functions {
		for id := len(nodes); id < placed.plan.Module.Functions[i].Nodes; id++ {
			nodes = append(nodes, relay.NodeID(id))
		}
	}
	module, p, err := network.PlaceLike(c.module, c.placementConfig(), placed.plan, nodes, alone.name)
	if err != nil {
		return nil, err
	}
	if same, err := sameModule(placed.module, module); err != nil || same {
		return []*finalist{placed}, err
	}
	c.note("What has open sizes was also put on %s, which takes the most: of that nothing is known alone.", alone.name)
	p.Module.Name, placed.name = c.Name, operatorLevelName
	return []*finalist{
		{name: openPartsName, module: module, plan: p, eligible: true, openOn: alone.name}, placed}, nil
}
