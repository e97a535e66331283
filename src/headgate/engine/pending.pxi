# The native half of pending_call.py. A call is sent like a coroutine, by the slot that `await` and tasks use; so an answer
# without a wait costs neither a frame nor a StopIteration.

cdef extern from *:
    """
    typedef int (*headgate_sends)(PyObject* self, PyObject* value, PyObject** answer);
    static headgate_sends headgate_send_asked, headgate_send_asked_core;
    static PySendResult headgate_sent(int sent) {
        return sent < 0 ? PYGEN_ERROR : sent ? PYGEN_NEXT : PYGEN_RETURN;
    }
    static PySendResult headgate_am_send_asked(PyObject* self, PyObject* value, PyObject** answer) {
        *answer = NULL;
        return headgate_sent(headgate_send_asked(self, value, answer));
    }
    static PySendResult headgate_am_send_asked_core(PyObject* self, PyObject* value, PyObject** answer) {
        *answer = NULL;
        return headgate_sent(headgate_send_asked_core(self, value, answer));
    }
    static void headgate_send_by(PyObject* asked, headgate_sends send, PyObject* asked_core, headgate_sends send_core) {
        headgate_send_asked = send;
        headgate_send_asked_core = send_core;
        ((PyTypeObject*) asked)->tp_as_async->am_send = headgate_am_send_asked;
        ((PyTypeObject*) asked_core)->tp_as_async->am_send = headgate_am_send_asked_core;
    }
    """
    ctypedef int (*headgate_sends)(PyObject* self, PyObject* value, PyObject** answer) except -1
    void headgate_send_by(object asked, headgate_sends send, object asked_core, headgate_sends send_core)
    ctypedef enum PySendResult:
        PYGEN_RETURN, PYGEN_ERROR, PYGEN_NEXT
    PySendResult PyIter_Send(PyObject* coroutine, PyObject* value, PyObject** answer)
    void Py_INCREF(PyObject* thing)


cdef int send_pending(PyObject* self, PyObject* value, PyObject** answer) except -1:
    """Return 1 if the call waits, 0 if it has its answer."""
    cdef PendingCall asked = <PendingCall> self
    if not asked._awaits:
        given = asked._begin()
        answer[0] = <PyObject*> given
        Py_INCREF(answer[0])
        return 0
    if asked._coroutine is None:
        asked._coroutine = asked._begin()
    cdef PySendResult sent = PyIter_Send(<PyObject*> asked._coroutine, value, answer)
    return -1 if sent == PYGEN_ERROR else sent == PYGEN_NEXT


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class PendingDecision:
    """A `PendingCall` of `hit` or `peek`, about one key, on a decider that answers at once."""

    cdef Decider decider
    cdef object key, cost, limit
    cdef Mode mode
    cdef bint begun

    def __await__(self):
        return self

    def __next__(self):
        raise StopIteration(self.begin())

    cdef object begin(self):
        cdef Decider decider = self.decider
        if self.begun:
            raise RuntimeError(AWAITED_TWICE)
        self.begun = True
        if self.limit is None:
            decision = decider.ask(self.key, self.cost, self.mode)
        else:
            decision = ask_plan(decider, self.limit, self.key, self.cost, self.mode)
        return decision if self.mode == M_PEEK else self.decider.counted(decision)

    def send(self, value):
        """Like the method of a coroutine."""
        raise StopIteration(self.begin())

    def throw(self, *error):
        """Like the method of a coroutine."""
        self.begun = True
        raise error[1] if len(error) > 1 and error[1] is not None else error[0]

    def close(self):
        """Like the method of a coroutine."""
        self.begun = True

    def __bool__(self):
        self.begun = True
        raise InvalidCall(NOT_AWAITED.format("peek" if self.mode == M_PEEK else "hit"))

    def __dealloc__(self):
        if not self.begun:
            warn_of_no_await("peek" if self.mode == M_PEEK else "hit")


cdef int send_pending_decision(PyObject* self, PyObject* value, PyObject** answer) except -1:
    given = (<PendingDecision> self).begin()
    answer[0] = <PyObject*> given
    Py_INCREF(answer[0])
    return 0


headgate_send_by(PendingCall, send_pending, PendingDecision, send_pending_decision)


@cython.final
cdef class PendingVerb:
    """A `PendingMethod` for `hit` and `peek` of a decider."""

    cdef dict __dict__
    cdef Decider decider
    cdef Mode mode

    def __init__(self, Decider decider not None, int mode):
        self.decider, self.mode = decider, <Mode> mode

    def __call__(self, key, cost=1, *, limit=None):
        cdef PendingDecision asked = PendingDecision.__new__(PendingDecision)
        asked.decider, asked.key, asked.cost, asked.limit, asked.mode = self.decider, key, cost, limit, self.mode
        return asked


def pending(method, function, bint awaits):
    """Return the method, answered by this function when awaited; see pure.py."""
    decider, name = getattr(function, "__self__", None), function.__name__
    if type(decider) is Decider and name in ("hit", "peek"):
        return looking_like(method, PendingVerb(decider, M_PEEK if name == "peek" else M_TAKE))
    return looking_like(method, PendingMethod(function, awaits))
