// SPDX-License-Identifier: Apache-2.0

// Package npz reads and writes NumPy's .npz archives, the format in which `collage run` takes a model's
// inputs and gives its outputs.
//
// What comes in: files as numpy.savez and numpy.savez_compressed write them. What goes out: Arrays with
// their data as little-endian bytes in row-major order, as TVM's NDArrays hold them, whatever byte order and
// layout the file had. Arrays of Python objects, strings and records are refused.
//
// The zip container is the standard library's. The array header is parsed here because the published Go
// readers cannot write arrays of more than two dimensions, know no float16, and take a short file for a
// whole one.
package npz

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/collage-tvm/collage/internal/atomicfile"
)

// Array is a named array. Data is little-endian, row-major and len(Data) is the number of elements times the
// element's size.
type Array struct {
	Name string
	// DType is TVM's name of the element type: "float32", "int64", "bool" ...
	DType string
	// Shape is empty for a scalar.
	Shape []int64
	Data  []byte
}

// Elements is the number of elements.
func (a *Array) Elements() int64 {
	n := int64(1)
	for _, d := range a.Shape {
		n *= d
	}
	return n
}

// Read reads all arrays of the archive at path, in the archive's order. Errors name the file and the array.
func Read(path string) ([]Array, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder, not an .npz file", path)
	}
	archive, err := zip.OpenReader(path)
	if err != nil {
		if errors.Is(err, zip.ErrFormat) {
			return nil, fmt.Errorf("%s is not an .npz file (numpy.savez writes them): %w", path, err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer archive.Close()

	arrays, err := readAll(&archive.Reader)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return arrays, nil
}

func readAll(archive *zip.Reader) ([]Array, error) {
	var arrays []Array
	seen := map[string]bool{}
	for _, file := range archive.File {
		name, isArray := strings.CutSuffix(file.Name, ".npy")
		if !isArray {
			return nil, fmt.Errorf("it holds %q, which is not an array (.npy)", file.Name)
		}
		if seen[name] {
			return nil, fmt.Errorf("it holds the array %q twice", name)
		}
		seen[name] = true
		array, err := readMember(file, name)
		if err != nil {
			return nil, fmt.Errorf("array %q: %w", name, err)
		}
		arrays = append(arrays, array)
	}
	return arrays, nil
}

func readMember(file *zip.File, name string) (Array, error) {
	r, err := file.Open()
	if err != nil {
		return Array{}, err
	}
	defer r.Close()
	return readArray(r, name, file.UncompressedSize64)
}

// Write writes the arrays to path as numpy.savez does, uncompressed. The file appears whole or not at all.
func Write(path string, arrays []Array) error {
	return atomicfile.Write(path, func(w io.Writer) error {
		archive := zip.NewWriter(w)
		for i := range arrays {
			member, err := archive.CreateHeader(&zip.FileHeader{Name: arrays[i].Name + ".npy", Method: zip.Store})
			if err != nil {
				return err
			}
			if err := writeArray(member, &arrays[i]); err != nil {
				return fmt.Errorf("array %q: %w", arrays[i].Name, err)
			}
		}
		return archive.Close()
	})
}
