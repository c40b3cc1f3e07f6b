// SPDX-License-Identifier: Apache-2.0

package network

import (
	"bufio"
	"encoding/binary"
	"os"

	"github.com/collage-tvm/collage/bridge"
)

// The marks of TVM's format of weights, which python/collage/parameters.py describes.
const (
	listMark  = 0xF7E58D4F05049CB7
	arrayMark = 0xDD5E40F096B4A13F
)

// weight is a tensor by name.
type weight struct {
	name   string
	tensor *bridge.NDArray
}

// saveWeights writes weights as TVM's runtime.SaveParams does, which holds all of them twice more and takes several times
// as long.
func saveWeights(path string, weights []weight) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closing := file.Close(); err == nil {
			err = closing
		}
	}()
	out := bufio.NewWriterSize(file, 1<<20)
	number := func(values ...uint64) {
		for _, v := range values {
			_, _ = out.Write(binary.LittleEndian.AppendUint64(nil, v)) // Flush tells of what failed
		}
	}
	number(listMark, 0, uint64(len(weights)))
	for _, w := range weights {
		number(uint64(len(w.name)))
		_, _ = out.WriteString(w.name)
	}
	number(uint64(len(weights)))
	for _, w := range weights {
		items, err := w.tensor.Memory()
		if err != nil { // it lies on a device, or has gaps
			if items, err = w.tensor.Bytes(); err != nil {
				return err
			}
		}
		shape, of := w.tensor.Shape(), w.tensor.DType()
		number(arrayMark, 0)
		head := binary.LittleEndian.AppendUint32(nil, uint32(bridge.CPU().Type))
		head = binary.LittleEndian.AppendUint32(head, 0)
		head = binary.LittleEndian.AppendUint32(head, uint32(len(shape)))
		head = append(head, of.Code, of.Bits)
		head = binary.LittleEndian.AppendUint16(head, of.Lanes)
		_, _ = out.Write(head)
		for _, extent := range shape {
			number(uint64(extent))
		}
		number(uint64(len(items)))
		_, _ = out.Write(items)
	}
	return out.Flush()
}
