// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"errors"
	"fmt"

	"github.com/collage-tvm/collage/pass/placing"
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

// placeOnMachine makes finalists of plain TVM, of every backend alone, and of what is placed: where sizes are open, what a
// search among whole networks finds at fixed ones (placeAtSize), and otherwise what candidates take alone. They are run
// on TVM's virtual machine: what parts take in place only the graph executor tells.
func (c *decision) placeOnMachine() error {
	if err := c.quiet(c.ctx); err != nil {
		return err
	}
	placed, err := c.placeAtSize()
	if err == nil && len(placed) == 0 {
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
	}
	c.finalists = append(c.finalists, placed...)
	return nil
}
