// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/collage-tvm/collage/internal/atomicfile"
	"github.com/collage-tvm/collage/pass/plan"
	"github.com/collage-tvm/collage/pass/report/picture"
)

// pictureFlags are --svg and --png: a picture of what runs where.
type pictureFlags struct{ svg, png string }

func (f *pictureFlags) declarePictures(flags *pflag.FlagSet) {
	flags.StringVar(&f.svg, "svg", "", "write a picture of what runs where to `FILE` (SVG)")
	flags.StringVar(&f.png, "png", "", "write the same picture to `FILE` (PNG)")
}

// pictures are the files that are written.
func (f *pictureFlags) pictures() (files []usedFile) {
	for _, file := range []usedFile{{"--svg", f.svg}, {"--png", f.png}} {
		if file.path != "" {
			files = append(files, file)
		}
	}
	return files
}

// checkPictures says which file cannot be written, before work is done.
func (f *pictureFlags) checkPictures() error {
	for _, file := range f.pictures() {
		if err := atomicfile.CheckWritable(file.path); err != nil {
			return fmt.Errorf("%s: %w", file.what, err)
		}
	}
	return nil
}

// writePictures draws a placement.
func (f *pictureFlags) writePictures(p *plan.Plan) error {
	if len(f.pictures()) == 0 {
		return nil
	}
	drawn, err := picture.New(p)
	if err != nil {
		return fmt.Errorf("--svg, --png: %w", err)
	}
	return f.write(drawn.WriteSVG, drawn.WritePNG)
}

func (f *pictureFlags) write(svg, png func(io.Writer) error) error {
	for _, file := range f.pictures() {
		draw := svg
		if file.path == f.png {
			draw = png
		}
		if err := atomicfile.Write(file.path, draw); err != nil {
			return fmt.Errorf("%s %s: %w", file.what, file.path, err)
		}
	}
	return nil
}

// tellPictures says which were written.
func (f *pictureFlags) tellPictures(w io.Writer) {
	for _, file := range f.pictures() {
		fmt.Fprintf(w, "wrote the picture %s\n", file.path)
	}
}
