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
	c.note("TVM's virtual machine runs it, since %s %s; it was placed by what its parts "+
		"take alone.", c.machine.Where, c.machine.Reason)
	return nil
}

// placeOnMachine places by what candidates take alone; what came of it stands against plain TVM and every backend alone
// on TVM's virtual machine. Whole networks are not searched: what their parts take in place only the graph executor
// tells.
func (c *decision) placeOnMachine() error {
	if err := c.quiet(c.ctx); err != nil {
		return err
	}
	placed, err := c.placement()
	if err != nil {
		return err
	}
	if c.reference, err = c.single("tvm"); err != nil {
		return err
	}
	c.finalists = []*finalist{placed}
	if c.reference.eligible = !c.constrained(); !c.reference.eligible {
		return nil // outputs are held against it, and only the placement keeps to what was asked for
	}
	c.finalists = []*finalist{c.reference}
	for _, b := range placed.plan.Backends {
		if b.Name == "tvm" || b.Unusable != "" {
			continue
		}
		alone, err := c.single(b.Name)
		if err != nil {
			return err
		}
		c.finalists = append(c.finalists, alone)
	}
	c.finalists = append(c.finalists, placed)
	return nil
}
