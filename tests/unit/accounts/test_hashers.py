"""Passwords are hashed as Django does it, where it keeps nobody waiting."""

from __future__ import annotations

import os
import threading

from django.contrib.auth.hashers import PBKDF2PasswordHasher

from accounts.hashers import PatientPBKDF2PasswordHasher, _thread

PATIENT = PatientPBKDF2PasswordHasher()


def test_a_hash_is_djangos_own() -> None:
    made = PATIENT.encode("secret", "salt", 1000)
    assert made == PBKDF2PasswordHasher().encode("secret", "salt", 1000)
    assert PATIENT.verify("secret", made)
    assert not PATIENT.verify("other", made)


def test_all_hashes_share_a_thread_of_low_priority() -> None:
    thread = _thread(os.getpid())
    assert thread._max_workers == 1
    native_id = thread.submit(threading.get_native_id).result()
    assert native_id != threading.get_native_id()
    assert os.getpriority(os.PRIO_PROCESS, native_id) >= 10
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) < 10
