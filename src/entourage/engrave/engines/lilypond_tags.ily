% Add attributes to every graphical object in the SVG: its type, its onset and its musical properties.
#(define (entourage-text x) (if (or (not x) (null? x)) "" (format #f "~a" x)))
#(define (entourage-property grob name)
   (let ((value (ly:grob-property grob name #f))) (if (procedure? value) "" (entourage-text value))))
#(define entourage-voices (make-weak-key-hash-table 1000)) % names of the voices of objects
#(define entourage-staves (make-weak-key-hash-table 1000)) % numbers of their staves
#(define entourage-numbers (make-hash-table)) % number of each staff, in any order
#(define (entourage-staff staff)
   (or (hashq-ref entourage-numbers staff #f)
       (hashq-set! entourage-numbers staff (1+ (hash-count (const #t) entourage-numbers)))))
#(define (entourage-place table grob)
   (let ((parent (ly:grob-parent grob Y)) ; that of an accidental is its notehead
         (whole (ly:grob-original grob))) ; a line that is broken at the end of a system
     (or (hashq-ref table grob #f)
         (and (ly:grob? whole) (hashq-ref table whole #f))
         (and (ly:grob? parent) (hashq-ref table parent #f))
         "")))
#(define (entourage-tag grob)
   (let* ((event (event-cause grob))
          (pitch (and event (ly:event-property event 'pitch #f)))
          (length (and event (ly:event-property event 'duration #f)))
          (text (ly:grob-property grob 'text #f))
          (keys (ly:grob-property grob 'alteration-alist #f))
          (time (and event (ly:event-property event 'numerator #f)))
          (moment (false-if-exception (grob::when grob))))
     (list (cons 'class (symbol->string (grob::name grob)))
           (cons 'data-glyph (entourage-property grob 'glyph-name))
           (cons 'data-onset (if (ly:moment? moment) (entourage-text (ly:moment-main moment)) ""))
           (cons 'data-grace (if (ly:moment? moment) (entourage-text (ly:moment-grace moment)) "0"))
           (cons 'data-duration
                 (if (ly:duration? length) (entourage-text (ly:moment-main (ly:duration-length length))) ""))
           (cons 'data-pitch
                 (if (ly:pitch? pitch)
                     (format #f "~a ~a ~a" (ly:pitch-octave pitch) (ly:pitch-notename pitch) (ly:pitch-alteration pitch))
                     ""))
           (cons 'data-log (entourage-property grob 'duration-log))
           (cons 'data-position (entourage-property grob 'staff-position))
           (cons 'data-direction (entourage-property grob 'direction))
           (cons 'data-grow (entourage-property grob 'grow-direction))
           (cons 'data-script (entourage-property grob 'script-stencil))
           (cons 'data-flags (entourage-property grob 'flag-count))
           (cons 'data-sign (if (pair? keys) (entourage-text (cdar keys)) ""))
           (cons 'data-fraction (entourage-property grob 'fraction))
           (cons 'data-style (entourage-property grob 'style))
           (cons 'data-voice (entourage-place entourage-voices grob))
           (cons 'data-staff (entourage-text (entourage-place entourage-staves grob)))
           (cons 'data-text (if (string? text) text "")))))
\layout {
  \context {
    \Score
    \consists #(lambda (context)
                 (make-engraver
                  (acknowledgers
                   ((grob-interface engraver grob source)
                    (let* ((place (ly:translator-context source))
                           (staff (and place (ly:context-find place 'Staff))))
                      (if (and place (eq? (ly:context-name place) 'Voice))
                          (hashq-set! entourage-voices grob (ly:context-id place)))
                      (if staff (hashq-set! entourage-staves grob (entourage-staff staff))))
                    (ly:grob-set-property! grob 'output-attributes entourage-tag)))))
  }
}
