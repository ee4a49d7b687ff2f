// Package tokenizer turns text into the tokens of a GGUF model and back, with exactly the ids of upstream llama.cpp.
//
// It knows three vocabularies: SPM ("llama": Llama 1 and 2, Gemma 1 to 3), byte-level BPE ("gpt2") with the
// pre-tokenisers listed by Supported, and Gemma 4's BPE on raw UTF-8 ("gemma4"). Any other vocabulary or pre-tokeniser is
// refused by name: a near miss would change every measured number without a trace. It applies no chat template and no
// clean-up of spaces, and it never drops or truncates text to fit a context.
package tokenizer

import (
	"fmt"
	"math"
	"strings"

	"attnbudget/engine/gguf"
)

// none marks a special token that a vocabulary lacks.
const none int32 = -1

// Tokenizer encodes and decodes with one vocabulary. It is immutable: all methods may be called concurrently.
type Tokenizer struct {
	vocab     *vocab
	pieces    [][]byte
	specials  *specials
	algorithm algorithm

	spm         bool
	spacePrefix bool // SPM: a space goes before text that starts a prompt or follows a special token
	escape      bool // spaces are written ▁ in token texts
	addBOS      bool
	addEOS      bool
	bos, eos    int32
	eog         map[int32]bool
	suppressed  []int32
}

// algorithm is how a stretch of text without special tokens becomes ids.
type algorithm interface {
	encode(text string, ids []int32) []int32
}

// New reads the vocabulary of a model. The error is a *gguf.KeyError for a missing or mistyped key, an
// *UnsupportedError for a vocabulary or pre-tokeniser this package does not know, or says which entry is inconsistent.
func New(f *gguf.File) (*Tokenizer, error) {
	model, err := f.String(keyModel)
	if err != nil {
		return nil, err
	}
	pre, err := f.StringOr(keyPre, "")
	if err != nil {
		return nil, err
	}
	kind, err := kindOf(f.Path, model, pre)
	if err != nil {
		return nil, err
	}
	v, err := readVocab(f)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{vocab: v, spm: model == modelSPM, escape: model != modelBPE}
	if err := t.readSettings(f, kind); err != nil {
		return nil, err
	}
	if t.eog, err = v.resolveSpecials(f, t.eos); err != nil {
		return nil, err
	}
	name, err := f.StringOr("general.name", "")
	if err != nil {
		return nil, err
	}
	t.specials = newSpecials(v, stripRules(v, name, pre))
	if t.pieces, err = v.pieces(t.escape); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	if t.spm {
		t.algorithm, err = newSPM(f.Path, v)
	} else {
		t.algorithm, err = newBPE(f, v, kind)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// readSettings reads the special tokens and flags, with upstream's defaults per vocabulary.
func (t *Tokenizer) readSettings(f *gguf.File, k kind) error {
	var err error
	if t.bos, err = t.vocab.specialID(f, keyBOS, k.bos); err != nil {
		return err
	}
	if t.eos, err = t.vocab.specialID(f, keyEOS, k.eos); err != nil {
		return err
	}
	if t.spacePrefix, err = f.BoolOr(keySpacePrefix, t.spm); err != nil {
		return err
	}
	t.spacePrefix = t.spacePrefix && t.spm // only SPM honours it
	if t.addBOS, err = f.BoolOr(keyAddBOS, k.addBOS); err != nil {
		return err
	}
	t.addBOS = t.addBOS || k.forceBOS
	if t.addEOS, err = f.BoolOr(keyAddEOS, false); err != nil {
		return err
	}
	if t.suppressed, err = t.vocab.ids(f, keySuppress); err != nil {
		return err
	}
	if t.addBOS && t.bos == none {
		return fmt.Errorf("%s: the vocabulary wants a BOS token (%s) but has none (%s): set one of them", f.Path, keyAddBOS, keyBOS)
	}
	if t.addEOS && t.eos == none {
		return fmt.Errorf("%s: the vocabulary wants an EOS token (%s) but has none (%s): set one of them", f.Path, keyAddEOS, keyEOS)
	}
	return nil
}

// Encode returns the tokens of text. addSpecial puts BOS and EOS where the vocabulary asks for them; parseSpecial
// recognises control tokens written in the text (user-defined tokens always are). Bytes that are not UTF-8 become
// U+FFFD in BPE vocabularies, as upstream, and byte tokens in SPM ones. It panics on a text of 2 GiB or more.
func (t *Tokenizer) Encode(text string, addSpecial, parseSpecial bool) []int32 {
	if len(text) >= math.MaxInt32 {
		panic("tokenizer: Encode takes texts below 2 GiB")
	}
	var ids []int32
	if addSpecial && t.addBOS {
		ids = append(ids, t.bos)
	}
	afterSpecial := true
	for _, f := range t.specials.partition(text, parseSpecial) {
		if f.token != none {
			ids = append(ids, f.token)
			afterSpecial = true
			continue
		}
		s := f.text
		if t.spacePrefix && afterSpecial {
			s = " " + s
		}
		if t.escape {
			s = strings.ReplaceAll(s, " ", escapedSpace)
		}
		ids = t.algorithm.encode(s, ids)
		afterSpecial = false
	}
	if addSpecial && t.addEOS {
		ids = append(ids, t.eos)
	}
	return ids
}

// VocabSize is the number of tokens; ids are 0 to VocabSize()-1.
func (t *Tokenizer) VocabSize() int { return len(t.vocab.tokens) }

// BOS is the token that begins a text, -1 if the vocabulary has none.
func (t *Tokenizer) BOS() int32 { return t.bos }

// EOS is the token that ends a text, -1 if the vocabulary has none.
func (t *Tokenizer) EOS() int32 { return t.eos }

// Suppressed are the tokens that the vocabulary says a generation must never choose. The caller must not change them.
func (t *Tokenizer) Suppressed() []int32 { return t.suppressed }

// AddBOS reports whether Encode with addSpecial begins with BOS.
func (t *Tokenizer) AddBOS() bool { return t.addBOS }

// AddEOS reports whether Encode with addSpecial ends with EOS.
func (t *Tokenizer) AddEOS() bool { return t.addEOS }

// IsSPM reports whether the vocabulary is a SentencePiece one.
func (t *Tokenizer) IsSPM() bool { return t.spm }

// IsEOG reports whether a model that generates id has finished (EOS, end of turn and the like).
func (t *Tokenizer) IsEOG(id int32) bool { return t.eog[id] }
